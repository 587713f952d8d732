package merge

import (
	"encoding/json"
	"reflect"
	"testing"
)

var lists = Lists{Keyed: map[string]string{"conditions": "type"}, Owned: map[string]bool{"ips": true}}

func TestDiff(t *testing.T) {
	for name, tt := range map[string]struct{ was, now, want string }{
		"equal":               {`{"a":1,"conditions":[{"type":"x"}]}`, `{"conditions":[{"type":"x"}],"a":1}`, `{}`},
		"fields":              {`{"a":1,"b":2}`, `{"a":2,"c":3}`, `{"a":2,"b":null,"c":3}`},
		"below":               {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"d":2}}`, `{"a":{"c":null,"d":2}}`},
		"a list":              {`{"a":[1,2]}`, `{"a":[2]}`, `{"a":[2]}`},
		"a list of ours":      {`{"ips":[{"ip":"a"}]}`, `{"ips":[{"ip":"b"}]}`, `{"ips":[{"$patch":"replace"},{"ip":"b"}]}`},
		"a list of ours gone": {`{"ips":[{"ip":"a"}]}`, `{}`, `{"ips":null}`},
		"a condition": {
			`{"conditions":[{"type":"x","status":"True","reason":"r"},{"type":"y"},{"type":"z"}]}`,
			`{"conditions":[{"type":"z"},{"type":"x","status":"False"},{"type":"new"}]}`,
			`{"conditions":[{"type":"x","status":"False","reason":null},{"type":"new"},{"type":"y","$patch":"delete"}]}`,
		},
		"all conditions gone": {`{"conditions":[{"type":"x"}]}`, `{}`, `{"conditions":[{"type":"x","$patch":"delete"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Object(Diff(object(t, tt.was), object(t, tt.now), lists))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, object(t, tt.want)) {
				t.Errorf("got %v, want %s", got, tt.want)
			}
		})
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
