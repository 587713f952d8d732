package stats

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// devices knows the names of block devices, which stay as long as a device does.
type devices struct {
	mu    sync.Mutex
	names map[string]string // by "major:minor"
}

// manyDevices is a number of names after which all are looked up again.
const manyDevices = 1024

// name is "/dev/sda", or the number of what has no name: two devices must not
// be taken for one.
func (d *devices) name(number string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name := d.names[number]; name != "" {
		return name
	}
	name := number
	if at, err := os.Readlink("/sys/dev/block/" + number); err == nil {
		name = "/dev/" + filepath.Base(at)
	}
	if d.names == nil || len(d.names) > manyDevices {
		d.names = map[string]string{}
	}
	d.names[number] = name
	return name
}

// holding is the device that a folder is on.
func (d *devices) holding(dir string) string {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return ""
	}
	dev := uint64(st.Dev)
	return d.name(strconv.Itoa(int(unix.Major(dev))) + ":" + strconv.Itoa(int(unix.Minor(dev))))
}

// transfer is what went to and came from one device.
type transfer struct {
	number                                 string // "major:minor"
	reads, readBytes, writes, writtenBytes uint64
}

// transfers reads the devices that the cgroup has used. ok says that the kernel
// counts at all.
func (c *cgroups) transfers(f *files, path string) (out []transfer, ok bool) {
	at := func(number []byte) *transfer {
		for i := range out {
			if out[i].number == string(number) {
				return &out[i]
			}
		}
		out = append(out, transfer{number: string(number)})
		return &out[len(out)-1]
	}
	dir := c.io + path
	if c.unified {
		text := f.readAll(dir, "io.stat")
		for line := range bytes.Lines(text) {
			number, rest, _ := bytes.Cut(line, []byte(" "))
			if bytes.IndexByte(number, ':') > 0 {
				at(number).add(rest)
			}
		}
		return out, text != nil
	}
	bytesOf := f.readAll(dir, "blkio.throttle.io_service_bytes_recursive")
	ok = bytesOf != nil
	service(bytesOf, func(number []byte, read bool, n uint64) {
		if t := at(number); read {
			t.readBytes = n
		} else {
			t.writtenBytes = n
		}
	})
	service(f.readAll(dir, "blkio.throttle.io_serviced_recursive"), func(number []byte, read bool, n uint64) {
		if t := at(number); read {
			t.reads = n
		} else {
			t.writes = n
		}
	})
	return out, ok
}

// add reads "rbytes=1 wbytes=2 rios=3 wios=4 ...".
func (t *transfer) add(text []byte) {
	for field := range bytes.FieldsSeq(text) {
		key, value, _ := bytes.Cut(field, []byte("="))
		n := number(value)
		if n == nil {
			continue
		}
		switch string(key) {
		case "rbytes":
			t.readBytes = *n
		case "wbytes":
			t.writtenBytes = *n
		case "rios":
			t.reads = *n
		case "wios":
			t.writes = *n
		}
	}
}

// service reads lines such as "8:0 Read 512" of cgroup v1.
func service(text []byte, each func(number []byte, read bool, n uint64)) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		n := number(f[2])
		read := string(f[1]) == "Read"
		if n != nil && (read || string(f[1]) == "Write") {
			each(f[0], read, *n)
		}
	}
}

// ioMetrics tells of one device without a name where the kernel counts and none
// was used: that is none read and none written.
func (c *cgroups) ioMetrics(t *target) {
	all, ok := c.transfers(t.files, t.path)
	if !ok {
		return
	}
	for _, x := range all {
		name := c.devices.name(x.number)
		t.io(x, name)
		major, minor, _ := bytes.Cut([]byte(x.number), []byte(":"))
		t.set(blkioUsage, x.readBytes, name, string(major), string(minor), "Read")
		t.set(blkioUsage, x.writtenBytes, name, string(major), string(minor), "Write")
	}
	if len(all) == 0 {
		t.io(transfer{}, "")
	}
}

func (t *target) io(x transfer, device string) {
	for _, m := range []struct {
		family *pod.MetricFamily
		value  uint64
	}{{fsReads, x.reads}, {fsReadBytes, x.readBytes}, {fsWrites, x.writes}, {fsWrittenByte, x.writtenBytes}} {
		t.set(m.family, m.value, device)
	}
}
