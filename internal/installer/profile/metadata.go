package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/fault"
)

// MetadataName is the file in the installer's folder that says what kind of node this
// is. Who makes images of an operating system may put one there; otherwise the installer
// does, for others to read, and takes it away with the last runtime.
const MetadataName = "node.json"

// Metadata is its content. What is empty is to be found out.
type Metadata struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// By is who has written it. What others say counts for the installer; what itself has
	// noted does where a runtime that is down cannot be told from another one.
	By string `json:"by,omitempty"`
	// OS is a profile, and BinaryPath where runtimes are put.
	OS         string `json:"os,omitempty"`
	BinaryPath string `json:"binaryPath,omitempty"`
	// Distribution is how the runtime is set up, Socket that of the CRI, Config the
	// file that the runtime reads, and Ctr containerd's own client.
	Distribution string `json:"distribution,omitempty"`
	Socket       string `json:"socket,omitempty"`
	Config       string `json:"config,omitempty"`
	Ctr          string `json:"ctr,omitempty"`
}

// installer is who the installer is in its own file.
const installer = "fairlead install"

const kindMetadata = "NodeMetadata"

// ReadMetadata is what somebody else has said about the node, or what an installer has noted,
// in a folder of it, below root. One or both are empty. A link is followed as the node does.
func ReadMetadata(root, dir string) (said, noted Metadata, err error) {
	m, err := readMetadata(root, dir)
	if m.By == installer {
		return Metadata{}, m, err
	}
	return m, Metadata{}, err
}

func readMetadata(root, dir string) (Metadata, error) {
	var m Metadata
	name := filepath.Join(dir, MetadataName)
	path := inroot.Join(root, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(inroot.JoinParent(root, name)); err == nil {
			return m, fault.New(payload.ConfigurationProblem, "%s is a link to %s, which is not there, or not mounted in this container; put a file there, or take the link away", name, to)
		}
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read what kind of node this is: %w", err)
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m); err != nil {
		return Metadata{}, fault.New(payload.ConfigurationProblem, "%s: %w; correct it, or take it away", path, err)
	}
	if m.APIVersion != payload.APIVersion || m.Kind != kindMetadata {
		return Metadata{}, fault.New(payload.ConfigurationProblem, "%s is %s %s and not %s %s; correct it, or take it away", path, m.APIVersion, m.Kind, payload.APIVersion, kindMetadata)
	}
	return m, nil
}

// WriteMetadata writes the file, unless somebody else has.
func WriteMetadata(dir string, m Metadata) error {
	mine, err := isMine(dir)
	if err != nil || !mine {
		return err
	}
	m.APIVersion, m.Kind, m.By = payload.APIVersion, kindMetadata, installer
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write what kind of node this is: %w", err)
	}
	path := filepath.Join(dir, MetadataName)
	if have, err := os.ReadFile(path); err == nil && string(have) == string(data)+"\n" {
		return nil
	}
	if err := atomicfile.WriteSync(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write what kind of node this is: %w", err)
	}
	return nil
}

// ForgetMetadata removes the file, unless somebody else has written it.
func ForgetMetadata(dir string) error {
	mine, err := isMine(dir)
	if err != nil || !mine {
		return err
	}
	if err := os.Remove(filepath.Join(dir, MetadataName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what kind of node this is: %w", err)
	}
	return nil
}

// isMine says that the file is the installer's, or that there is none. The installer
// makes no links.
func isMine(dir string) (bool, error) {
	path := filepath.Join(dir, MetadataName)
	if _, err := os.Readlink(path); err == nil {
		return false, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at what kind of node this is: %w", err)
	}
	var m Metadata
	return json.Unmarshal(data, &m) == nil && m.By == installer, nil
}
