package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"fairlead.run/internal/errdefs"
)

// conflist is what the configuration directory says at one moment.
type conflist struct {
	configured bool
	file       string
	list       *libcni.NetworkConfigList // nil if err
	frozen     []byte                    // the list with everything it refers to
	err        error
}

// load reads the configuration that counts.
func (c *Config) load() conflist {
	file := c.Conflist
	if file == "" {
		files, err := libcni.ConfFiles(c.ConfDir, []string{".conflist", ".conf", ".json"})
		if err != nil {
			return conflist{configured: true, file: c.ConfDir, err: fmt.Errorf("list CNI configurations: %w", err)}
		}
		if len(files) == 0 {
			return conflist{}
		}
		file = slices.Min(files)
	}
	cl := conflist{configured: true, file: file}
	if cl.list, cl.frozen, cl.err = read(file); cl.err != nil {
		cl.list = nil
		cl.err = fmt.Errorf("CNI configuration %s is not usable: %w: %w", file, cl.err, errdefs.ErrUnavailable)
	}
	return cl
}

func read(file string) (*libcni.NetworkConfigList, []byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil, nil, errors.New("the file is empty")
	}
	if !strings.HasSuffix(file, ".conflist") {
		if raw, err = fromSingle(raw); err != nil {
			return nil, nil, err
		}
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		return nil, nil, err
	}
	if !list.LoadOnlyInlinedPlugins { // plugins in files of a folder beside it
		more, err := libcni.NetworkPluginConfsFromFiles(filepath.Dir(file), list.Name)
		if err != nil {
			return nil, nil, err
		}
		list.Plugins = append(list.Plugins, more...)
	}
	if err := validate(list); err != nil {
		return nil, nil, err
	}
	frozen, err := freeze(list)
	if err != nil {
		return nil, nil, err
	}
	list, err = libcni.NetworkConfFromBytes(frozen)
	return list, frozen, err
}

// fromSingle makes a list of a file that holds one plugin's configuration.
func fromSingle(raw []byte) ([]byte, error) {
	var head struct {
		CNIVersion string          `json:"cniVersion"`
		Name       string          `json:"name"`
		Plugins    json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if head.Plugins != nil {
		return raw, nil
	}
	return json.Marshal(frozenList{CNIVersion: head.CNIVersion, Name: head.Name, Inline: true, Plugins: []json.RawMessage{raw}})
}

// validate finds what libcni would only say when a pod is started.
func validate(list *libcni.NetworkConfigList) error {
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return fmt.Errorf("network name %q: %s", list.Name, err.Details)
	}
	if len(list.Plugins) == 0 {
		return errors.New("it has no plugins")
	}
	known := version.All.SupportedVersions()
	if list.CNIVersion != "" && !slices.Contains(known, list.CNIVersion) {
		return fmt.Errorf("cniVersion %q is none of %s", list.CNIVersion, strings.Join(known, ", "))
	}
	return nil
}

// frozenList is a conflist that needs no other file.
type frozenList struct {
	CNIVersion   string            `json:"cniVersion,omitempty"`
	Name         string            `json:"name"`
	DisableCheck bool              `json:"disableCheck,omitempty"`
	DisableGC    bool              `json:"disableGC,omitempty"`
	Inline       bool              `json:"loadOnlyInlinedPlugins"`
	Plugins      []json.RawMessage `json:"plugins"`
}

func freeze(list *libcni.NetworkConfigList) ([]byte, error) {
	f := frozenList{CNIVersion: list.CNIVersion, Name: list.Name, DisableCheck: list.DisableCheck, DisableGC: list.DisableGC, Inline: true}
	for _, p := range list.Plugins {
		f.Plugins = append(f.Plugins, p.Bytes)
	}
	return json.Marshal(f)
}

// missing names the plugins of a list that are in none of the directories.
func (c *Config) missing(list *libcni.NetworkConfigList) error {
	for _, p := range list.Plugins {
		if _, err := findPlugin(p.Network.Type, c.BinDirs); err != nil {
			return err
		}
	}
	return nil
}
