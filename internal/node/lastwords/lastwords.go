// Package lastwords is what containers leave to be said about their end: the file
// of terminationMessagePath, or the last lines of the log.
package lastwords

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs"
)

// The kubelet's bounds: of a message, and of the lines of a log that take its place.
const (
	maxMessage = 4096
	maxLines   = 80
	maxLog     = 2048
)

// Note is where an attempt at a container leaves its last words.
type Note struct {
	Container *corev1.Container
	Folder    string // of the pod
	// Earlier is where agents before this one have left the words of attempts that they
	// have started. It is looked into, and nothing is made there.
	Earlier string
	Attempt uint32
}

func (n Note) in(folder string) string {
	return filepath.Join(folder, fmt.Sprintf("%s.%d", n.Container.Name, n.Attempt))
}

// Mount makes the file, which any user of the container may write, and says how it
// gets there.
func (n Note) Mount() (*runtimeapi.Mount, error) {
	path := n.Container.TerminationMessagePath
	if path == "" {
		path = corev1.TerminationMessagePathDefault
	}
	file := n.in(n.Folder)
	if err := os.MkdirAll(n.Folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o666); err != nil {
		return nil, err
	}
	return &runtimeapi.Mount{ContainerPath: path, HostPath: file, SelinuxRelabel: true}, nil
}

// Read reads the words back, from the log if the container failed without any and
// wants that. They are the container's own text: bounded, and as it wrote them.
func (n Note) Read(exit int32, log string) string {
	text := head(n.in(n.Folder), n.in(n.Earlier))
	if text == "" && n.Container.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && exit != 0 {
		text = tail(log)
	}
	return text
}

// RemoveBefore forgets those of the container's attempts before that one.
func (n Note) RemoveBefore() error {
	return each([]string{n.Folder, n.Earlier}, func(folder string, f os.DirEntry) error {
		number, mine := strings.CutPrefix(f.Name(), n.Container.Name+".")
		if old, err := strconv.ParseUint(number, 10, 32); mine && err == nil && uint32(old) < n.Attempt {
			return os.Remove(filepath.Join(folder, f.Name()))
		}
		return nil
	})
}

// Shrink cuts the files in folders of pods down to what is told of them: containers may
// have filled the disk with the rest.
func Shrink(folders ...string) error {
	return each(folders, func(folder string, f os.DirEntry) error {
		info, err := f.Info()
		if err != nil || info.Size() <= maxMessage {
			return err
		}
		return os.Truncate(filepath.Join(folder, f.Name()), maxMessage)
	})
}

// each does something with each file of folders, some of which may not be there.
func each(folders []string, do func(folder string, f os.DirEntry) error) error {
	var errs []error
	for _, folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, f := range files {
			errs = append(errs, do(folder, f))
		}
	}
	return errors.Join(errs...)
}

// OneLine is a text as it stands in a sentence.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func head(path, earlier string) string {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.Open(earlier)
	}
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	return string(data)
}

// tail is the last lines of a log, as far as they fit: a line may be as large as the log.
func tail(path string) string {
	var text []byte
	add := func(b []byte) {
		if text = append(text, b...); len(text) > 2*maxLog {
			text = append(text[:0], text[len(text)-maxLog:]...)
		}
	}
	err := logs.Read(context.Background(), path, logs.Options{Tail: maxLines}, func(l logs.Line) error {
		add(l.Text[max(0, len(l.Text)-maxLog):])
		if !l.Partial { // the words themselves, and no more
			add([]byte{'\n'})
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-maxLog):])
}
