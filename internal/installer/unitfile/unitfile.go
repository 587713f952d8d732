// Package unitfile reads from systemd's files how a service is started: from its unit
// and the drop-ins to that, also while the service is down or systemd is not running.
//
// It knows no more of units than the command line takes, and asks systemd nothing: what
// was changed since systemd has read its files is what counts here.
package unitfile

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inroot"
)

// Dirs are where systemd looks for units and for folders of drop-ins, the most important
// first (systemd.unit(5), "Unit File Load Path").
var Dirs = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
	"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached", "/run/systemd/generator",
	"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late",
}

// maxFile is the largest file that is read, in bytes.
const maxFile = 1 << 20

// devNull is what units and drop-ins are linked to that are switched off.
const devNull = "/dev/null"

// Command is the command line by which systemd starts a service: the last ExecStart of
// its unit and drop-ins, below root, with variables and specifiers filled in. Env are the
// variables that these files set. The error is errdefs.ErrNotFound if there is no such
// unit.
func Command(root, unit string) (args []string, env map[string]string, err error) {
	s, err := load(root, unit)
	if err == nil {
		env, err = s.env()
	}
	if err == nil {
		args, err = s.command(env)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look how %s is started: %w", unit, err)
	}
	return args, env, nil
}

// load reads the files of a unit.
func load(root, unit string) (*service, error) {
	path, err := fragment(root, unit)
	if err != nil {
		return nil, err
	}
	// A unit that is a link has the drop-ins of both names.
	names := []string{unit}
	if real := filepath.Base(inroot.Join(root, path)); real != unit {
		names = append(names, real)
	}
	s := service{root: root, unit: unit}
	for _, path := range append([]string{path}, dropIns(root, names)...) {
		if err := s.read(path); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// fragment is the file of a unit.
func fragment(root, unit string) (string, error) {
	for _, dir := range Dirs {
		path := filepath.Join(dir, unit)
		if masked(root, path) {
			return "", fmt.Errorf("it is masked by %s: %w", path, errdefs.ErrPrecondition)
		}
		if _, err := os.Stat(inroot.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no such unit: %w", errdefs.ErrNotFound)
}

func masked(root, path string) bool {
	to, err := os.Readlink(inroot.JoinParent(root, path))
	return err == nil && to == devNull
}

// dropIns are the files of drop-ins to a unit of some names, in the order in which they
// count. Of several with one name there is the most important one.
func dropIns(root string, names []string) []string {
	var folders []string
	for n, name := range names {
		for _, dir := range Dirs {
			for _, of := range owners(name, n == 0) {
				folders = append(folders, filepath.Join(dir, of+".d"))
			}
		}
	}
	for _, dir := range Dirs {
		folders = append(folders, filepath.Join(dir, strings.TrimPrefix(filepath.Ext(names[0]), ".")+".d"))
	}
	byName := map[string]string{}
	for _, folder := range folders {
		entries, err := os.ReadDir(inroot.Join(root, folder))
		if err != nil {
			continue // it is not there
		}
		for _, e := range entries {
			if _, seen := byName[e.Name()]; !seen && filepath.Ext(e.Name()) == ".conf" {
				byName[e.Name()] = filepath.Join(folder, e.Name())
			}
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if !masked(root, byName[name]) {
			all = append(all, byName[name])
		}
	}
	return all
}

// owners are the names whose drop-ins a unit has: its own, and those of its prefixes that
// end with a dash.
func owners(unit string, prefixes bool) []string {
	all := []string{unit}
	ext := filepath.Ext(unit)
	stem := strings.TrimSuffix(unit, ext)
	for prefixes {
		at := strings.LastIndex(strings.TrimSuffix(stem, "-"), "-")
		if at <= 0 {
			break
		}
		stem = stem[:at+1]
		all = append(all, stem+ext)
	}
	return all
}

// service is what was read of a service so far.
type service struct {
	root, unit string
	// starts are the values of ExecStart, environment those of Environment, and files
	// those of EnvironmentFile.
	starts, environment, files []string
}

// read takes what a file says over what is there.
func (s *service) read(path string) error {
	text, err := s.text(path)
	if err != nil {
		return err
	}
	section := ""
	for _, line := range logical(text) {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section != "[Service]" {
			continue
		}
		s.assign(strings.Trim(key, blank), strings.Trim(value, blank))
	}
	return nil
}

// assign adds to a list; an empty value empties it.
func (s *service) assign(key, value string) {
	list := map[string]*[]string{"ExecStart": &s.starts, "Environment": &s.environment, "EnvironmentFile": &s.files}[key]
	switch {
	case list == nil:
	case value == "":
		*list = nil
	default:
		*list = append(*list, value)
	}
}

func (s *service) text(path string) (string, error) {
	at := inroot.Join(s.root, path)
	info, err := os.Stat(at)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("%s is no regular file of at most %d bytes: %w", path, maxFile, errdefs.ErrInvalidArgument)
	}
	data, err := os.ReadFile(at)
	return string(data), err
}

// blank is what separates words.
const blank = " \t\r"

// logical are the lines of a file without comments, those that end with a backslash
// joined with what follows.
func logical(text string) []string {
	var all []string
	joined := ""
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), blank)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // also in the middle of a line that goes on
		}
		if before, more := strings.CutSuffix(line, `\`); more {
			joined += before + " "
			continue
		}
		if line = strings.Trim(joined+line, blank); line != "" {
			all = append(all, line)
		}
		joined = ""
	}
	if joined = strings.Trim(joined, blank); joined != "" {
		all = append(all, joined)
	}
	return all
}

// command makes words of the last ExecStart.
func (s *service) command(env map[string]string) ([]string, error) {
	if len(s.starts) == 0 {
		return nil, fmt.Errorf("its files have no ExecStart: %w", errdefs.ErrInvalidArgument)
	}
	words, err := s.words(s.starts[len(s.starts)-1])
	if err != nil {
		return nil, err
	}
	for n, w := range slices.Backward(words) {
		if w == (word{text: ";", bare: true}) {
			words = words[n+1:] // several commands in one line
			break
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("its ExecStart is empty: %w", errdefs.ErrInvalidArgument)
	}
	program := strings.TrimLeft(words[0].text, prefixes)
	prefix := strings.TrimSuffix(words[0].text, program)
	args := []string{program}
	rest := words[1:]
	if strings.Contains(prefix, "@") && len(rest) > 0 {
		rest = rest[1:] // what the program is told that it is called
	}
	if strings.Contains(prefix, ":") {
		for _, w := range rest {
			args = append(args, w.text)
		}
		return args, nil
	}
	for _, w := range rest {
		args = append(args, expand(w.text, env)...)
	}
	return args, nil
}

// prefixes come before a program and say how it is run (systemd.service(5), "Command
// Lines").
const prefixes = "@-:+!|"

// env are the variables that a service is started with, as far as its files set them.
func (s *service) env() (map[string]string, error) {
	all := map[string]string{}
	for _, line := range s.environment {
		words, err := s.words(line)
		if err != nil {
			return nil, err
		}
		for _, w := range words {
			if name, value, ok := strings.Cut(w.text, "="); ok {
				all[name] = value
			}
		}
	}
	for _, pattern := range s.files {
		if err := s.envFile(pattern, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// envFile adds the variables of the files that EnvironmentFile names. They count more
// than those of Environment.
func (s *service) envFile(pattern string, all map[string]string) error {
	path, may := strings.CutPrefix(pattern, "-")
	path, err := s.specifiers(path)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(inroot.Join(s.root, filepath.Dir(path)), filepath.Base(path)))
	if err != nil {
		return fmt.Errorf("EnvironmentFile=%s is no pattern: %w", pattern, err)
	}
	if len(found) == 0 && !may {
		return fmt.Errorf("EnvironmentFile %s is not there, so that systemd does not start it: %w", path, fs.ErrNotExist)
	}
	for _, f := range found {
		text, err := s.text(filepath.Join(filepath.Dir(path), filepath.Base(f)))
		if err != nil && !may {
			return err
		}
		for _, line := range logical(text) {
			if name, value, ok := strings.Cut(line, "="); ok {
				all[strings.Trim(name, blank)] = unquoted(strings.Trim(value, blank))
			}
		}
	}
	return nil
}

// unquoted is a value of such a file.
func unquoted(value string) string {
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}
