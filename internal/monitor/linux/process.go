package linux

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is the part of /proc/PID/stat that identifies a process and its place.
type Stat struct {
	PID     int
	State   byte // 'Z' for a zombie
	PPID    int
	PGRP    int
	Session int
	Start   uint64 // field 22, clock ticks since boot
}

// ReadStat reads /proc/PID/stat. The error of a process that does not exist
// wraps os.ErrNotExist or ESRCH.
func ReadStat(pid int) (Stat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(data)
}

// NoProcess says of an error of ReadStat that nobody has the pid. Any other, as that there are no
// descriptors left, says nothing of the process.
func NoProcess(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// parseStat takes the fields after the last ')', because the name before it is
// the process's own choice and may hold anything.
func parseStat(data []byte) (Stat, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("read process status %.40q: no name", data)
	}
	fields := strings.Fields(string(data[end+1:]))
	const startField = 22 - 3 // the first field after the name is number 3
	if len(fields) <= startField || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("read process status %.40q: too few fields", data)
	}
	s := Stat{State: fields[0][0]}
	var err error
	number := func(text string) int {
		n, e := strconv.Atoi(text)
		if e != nil && err == nil {
			err = fmt.Errorf("read process status: %w", e)
		}
		return n
	}
	s.PID = number(string(bytes.TrimSpace(data[:open])))
	s.PPID, s.PGRP, s.Session = number(fields[1]), number(fields[2]), number(fields[3])
	start, e := strconv.ParseUint(fields[startField], 10, 64)
	if e != nil && err == nil {
		err = fmt.Errorf("read process status: %w", e)
	}
	s.Start = start
	return s, err
}

// Processes reads the status of every process. One that ends meanwhile is left
// out.
func Processes() ([]Stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := ReadStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}
