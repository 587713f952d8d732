package cron

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

func at(t *testing.T, text, zone string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Skipf("no time zones here: %v", err)
	}
	out, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNext(t *testing.T) {
	const berlin, beirut = "Europe/Berlin", "Asia/Beirut"
	tests := []struct {
		schedule, zone, from string
		want                 []string // the times after one another
	}{
		{"* * * * *", "UTC", "2026-01-31 23:58", []string{"2026-01-31 23:59", "2026-02-01 00:00"}},
		{"*/15 * * * *", "UTC", "2026-01-01 00:00", []string{"2026-01-01 00:15", "2026-01-01 00:30", "2026-01-01 00:45", "2026-01-01 01:00"}},
		{"5/20 * * * *", "UTC", "2026-01-01 00:00", []string{"2026-01-01 00:05", "2026-01-01 00:25", "2026-01-01 00:45", "2026-01-01 01:05"}},
		{"0 9-17/4 * * mon-fri", "UTC", "2026-01-02 12:00", []string{"2026-01-02 13:00", "2026-01-02 17:00", "2026-01-05 09:00"}},
		{"30 2 1,15 jan,FEB ?", "UTC", "2026-01-10 00:00", []string{"2026-01-15 02:30", "2026-02-01 02:30", "2026-02-15 02:30", "2027-01-01 02:30"}},
		{"0 0 13 * 5", "UTC", "2026-02-11 00:00", []string{"2026-02-13 00:00", "2026-02-20 00:00", "2026-02-27 00:00", "2026-03-06 00:00", "2026-03-13 00:00"}}, // either
		{"0 0 */10 * 0", "UTC", "2026-02-01 00:00", []string{"2026-02-08 00:00", "2026-02-11 00:00"}},                                                           // a step is no star
		{"0 0 29 2 *", "UTC", "2026-01-01 00:00", []string{"2028-02-29 00:00", "2032-02-29 00:00"}},
		{"0 0 29 2 *", "UTC", "2096-03-01 00:00", []string{"2104-02-29 00:00"}},
		{"0 0 31 * *", "UTC", "2026-01-31 00:00", []string{"2026-03-31 00:00"}},
		{"@yearly", "UTC", "2026-01-01 00:00", []string{"2027-01-01 00:00"}},
		{"@monthly", "UTC", "2026-01-01 00:00", []string{"2026-02-01 00:00"}},
		{"@weekly", "UTC", "2026-01-01 00:00", []string{"2026-01-04 00:00"}},
		{"@daily", "UTC", "2026-01-01 00:00", []string{"2026-01-02 00:00"}},
		{"@hourly", "UTC", "2026-01-01 00:00", []string{"2026-01-01 01:00"}},
		{"@every 90m", "UTC", "2026-01-01 00:07", []string{"2026-01-01 01:37", "2026-01-01 03:07"}},
		{"30 2 * * *", berlin, "2026-03-28 00:00", []string{"2026-03-28 02:30", "2026-03-30 02:30"}}, // 02:30 does not exist on the 29th
		{"0 3 * * *", berlin, "2026-03-29 00:00", []string{"2026-03-29 03:00"}},
		{"0 0 * * *", beirut, "2026-03-28 00:00", []string{"2026-03-30 00:00"}}, // nor does midnight
		{"0 1 * * *", beirut, "2026-03-28 12:00", []string{"2026-03-29 01:00"}},
	}
	for _, tt := range tests {
		s, err := Parse(tt.schedule)
		if err != nil {
			t.Errorf("%s: %v", tt.schedule, err)
			continue
		}
		now := at(t, tt.from, tt.zone)
		for _, want := range tt.want {
			if now = s.Next(now); now.Format("2006-01-02 15:04") != want {
				t.Errorf("%s after %s: %s, want %s", tt.schedule, tt.from, now, want)
			}
		}
	}
	// 02:30 is there twice.
	s, _ := Parse("30 2 * * *")
	first := s.Next(at(t, "2026-10-25 00:00", berlin))
	if second := s.Next(first); second.Sub(first) != time.Hour || second.Format("15:04") != "02:30" {
		t.Errorf("%s, %s", first, second)
	}
}

// TestByTheMinute goes through every minute around the days on which clocks are set,
// by an hour at two, by an hour at midnight and by half an hour.
func TestByTheMinute(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func(most int) string {
		return []string{"*", strconv.Itoa(random.IntN(most)), "*/" + strconv.Itoa(1+random.IntN(most))}[random.IntN(3)]
	}
	for _, from := range []time.Time{
		at(t, "2026-03-27 12:00", "Europe/Berlin"), at(t, "2026-10-23 12:00", "Europe/Berlin"),
		at(t, "2026-03-27 12:00", "Asia/Beirut"), at(t, "2026-10-23 12:00", "Asia/Beirut"),
		at(t, "2026-04-03 12:00", "Australia/Lord_Howe"), at(t, "2026-10-02 12:00", "Australia/Lord_Howe"),
	} {
		for range 100 {
			text := number(60) + " " + number(24) + " * * " + number(7)
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			next := s.Next(from)
			for now := from.Add(time.Minute); now.Sub(from) < 4*24*time.Hour; now = now.Add(time.Minute) {
				due := s.minute&(1<<now.Minute()) != 0 && s.hour&(1<<now.Hour()) != 0 && s.weekday&(1<<now.Weekday()) != 0
				if due != now.Equal(next) {
					t.Fatalf("%s from %s: %t at %s, and Next says %s", text, from, due, now, next)
				}
				if due {
					next = s.Next(now)
				}
			}
		}
	}
}

func TestLast(t *testing.T) {
	tests := []struct{ schedule, after, now, want string }{
		{"* * * * *", "2016-01-01 00:00", "2026-05-05 12:30", "2026-05-05 12:30"},
		{"0 0 1 1 *", "2016-01-01 00:00", "2026-05-05 12:30", "2026-01-01 00:00"},
		{"0 0 29 2 *", "2016-01-01 00:00", "2026-05-05 12:30", "2024-02-29 00:00"},
		{"0 12 * * *", "2026-05-05 12:00", "2026-05-06 11:59", ""},
		{"0 12 * * *", "2026-05-05 12:00", "2026-05-06 12:00", "2026-05-06 12:00"},
		{"0 12 * * *", "2026-05-07 12:00", "2026-05-06 12:00", ""}, // the clock was set back
		{"@every 1h", "2026-05-05 12:10", "2026-05-05 13:09", ""},
		{"@every 1h", "2026-05-05 12:10", "2026-05-06 12:00", "2026-05-06 11:10"},
	}
	for _, tt := range tests {
		s, err := Parse(tt.schedule)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := s.Last(at(t, tt.after, "UTC"), at(t, tt.now, "UTC"))
		if text := got.Format("2006-01-02 15:04"); ok != (tt.want != "") || (ok && text != tt.want) {
			t.Errorf("%s from %s to %s: %s, %t, want %q", tt.schedule, tt.after, tt.now, text, ok, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "has 0 fields and needs 5: minute, hour, day of the month, month and day of the week",
		"* * * *":              "has 4 fields and needs 5: minute, hour, day of the month, month and day of the week",
		"60 * * * *":           `minute: "60" is not between 0 and 59`,
		"* -1 * * *":           `hour: "" is not between 0 and 23`,
		"* * 0 * *":            `day of the month: "0" is not between 1 and 31`,
		"* * * 13 *":           `month: "13" is not between 1 and 12`,
		"* * * * 7":            `day of the week: "7" is not between 0 and 6`,
		"5-1 * * * *":          `minute: "5-1" ends before it begins`,
		"*/0 * * * *":          `minute: "0" is not a step`,
		"*/x * * * *":          `minute: "x" is not a step`,
		"1-x * * * *":          `minute: "x" is not between 0 and 59`,
		"1,,2 * * * *":         `minute: "" is not between 0 and 59`,
		"0 0 30 2 *":           "no such day exists",
		"@reboot":              "is not one of @yearly, @monthly, @weekly, @daily, @hourly and @every",
		"@every -1h":           `"-1h" is not a time such as 1h30m`,
		"TZ=Etc/UTC * * * * *": "a time zone has no place in it; use spec.timeZone",
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3,7 1 jan mon", int64(1_700_000_000))
	f.Add("@every 1h", int64(0))
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		now := time.Unix(unix%4_000_000_000, 0).UTC()
		if next := s.Next(now); !next.After(now) {
			t.Errorf("%q: %s follows %s", text, next, now)
		}
	})
}
