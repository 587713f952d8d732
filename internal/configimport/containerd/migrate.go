package containerd

import "fairlead.run/internal/configimport/tree"

// The plugins that have what concerns pods. Before version 3 of the format the
// first had it all.
const (
	cri      = "io.containerd.grpc.v1.cri"
	runtime  = "io.containerd.cri.v1.runtime"
	images   = "io.containerd.cri.v1.images"
	transfer = "io.containerd.transfer.v1.local"
	nri      = "io.containerd.nri.v1.nri"
	otlp     = "io.containerd.tracing.processor.v1.otlp"
	sampling = "io.containerd.internal.v1.tracing"
)

var (
	// ofImages are the keys of the old plugin that went to the images.
	ofImages = []string{
		"registry", "image_decryption", "max_concurrent_downloads",
		"image_pull_progress_timeout", "image_pull_with_sync_fs", "stats_collect_period",
	}
	// ofStore are the keys of its table containerd that did.
	ofStore = []string{"snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"}
	// ofServer are those that stayed where they were.
	ofServer = []string{
		"disable_tcp_service", "stream_server_address", "stream_server_port", "stream_idle_timeout",
		"enable_tls_streaming", "x509_key_pair_streaming",
	}
)

// binDirs gives the folder of plugins its newer name, with which it is a list.
func binDirs(cni *tree.Node) {
	if dir := cni.At("bin_dir"); dir != nil && dir.Text() != "" {
		list := *dir
		list.Value = []any{dir.Text()}
		cni.Put(&list, false, "bin_dirs")
		delete(cni.Table, "bin_dir")
	}
}

// migrate moves the keys of a file to where version 4 has them. Like containerd
// it does so for each file by itself, whichever of the older versions it has.
func migrate(file *tree.Node, version int64) {
	for _, id := range []string{cri, runtime, "cri"} {
		binDirs(file.At("plugins", id, "cni"))
	}
	if version >= newest {
		return
	}
	if old := file.At("plugins", "cri"); old != nil {
		file.Put(old, false, "plugins", cri)
		delete(file.At("plugins").Table, "cri")
	}
	old := file.At("plugins", cri)
	if !old.IsTable() {
		return
	}
	delete(file.At("plugins").Table, cri)
	move := func(name, to string, over bool, names ...string) {
		if n := old.At(append(names, name)...); n != nil {
			file.Put(n, over, append(append([]string{"plugins", to}, names...), name)...)
			delete(old.At(names...).Table, name)
		}
	}
	for _, name := range ofServer {
		move(name, cri, true)
	}
	for _, name := range ofImages {
		move(name, images, true)
	}
	if pause := old.At("sandbox_image"); pause != nil {
		file.Put(pause, true, "plugins", images, "pinned_images", "sandbox")
		delete(old.Table, "sandbox_image")
	}
	for _, name := range ofStore {
		if n := old.At("containerd", name); n != nil {
			file.Put(n, true, "plugins", images, name)
			delete(old.At("containerd").Table, name)
		}
	}
	// A tree has no order, so that the tables come before what is in them.
	for _, table := range []string{"cni", "containerd"} {
		for _, name := range old.At(table).Names() {
			move(name, runtime, false, table)
		}
		if old.At(table).IsTable() {
			delete(old.Table, table)
		}
	}
	for _, name := range old.Names() {
		move(name, runtime, false)
	}
}
