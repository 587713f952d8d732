// Command docgen writes docs/configuration.md, the reference of the
// configuration file, from the structs that decode it. "go generate" runs it;
// it is no part of the product.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"

	"fairlead.run/api/config/v1alpha1"
)

const head = `# Configuration

<!-- Written by api/config/v1alpha1/docgen from the structs; change those and run "make generate". -->

Fairlead needs no configuration file. It reads, where they exist, ` + "`/etc/fairlead/config.toml`" + ` and then every
` + "`/etc/fairlead/conf.d/*.toml`" + ` in lexical order; ` + "`--config PATH`" + ` names another file or directory instead. The format is
TOML. Tables of several files are merged, a later value replaces an earlier one, a list is replaced as a whole, and a
handler is described in one file only. Flags come last.

What is not understood is an error, never ignored. It names the file, the line and what is wrong:

` + "```" + `
/etc/fairlead/config.toml:3:1: network.brige: unknown key, did you mean network.bridge?
` + "```" + `

An example with two handlers:

` + "```toml" + `
version = 1
default_handler = "crun"

[handlers.crun]

[handlers.native]
path = "/usr/sbin/runc"
pod_annotations = ["example.com/*"]

[containers.rlimits]
nofile = { soft = 1024, hard = 524288 }
core = { soft = 0, hard = "unlimited" }
` + "```" + `
`

const tail = `
## Handlers that are not described

Without any ` + "`[handlers.NAME]`" + ` table, the handlers are those of crun, runc and gVisor's runsc that are found on PATH or in the usual
directories of programs, under these names. Every handler is tried before it is offered: [handlers.md](handlers.md) says how, and
when again.

crun refuses hosts with cgroup v1 whose cgroup v2 hierarchy, ` + "`/sys/fs/cgroup/unified`" + `, still has controllers. The reason
names them and the commands that mount them as cgroup v1 hierarchies.

[gvisor.md](gvisor.md) has what is different for pods on gVisor, and [shims.md](shims.md) how containerd shims are configured.
`

func main() {
	out := flag.String("o", "", "the file to write; standard output if empty")
	flag.Parse()
	text := render(v1alpha1.Keys())
	if *out == "" {
		fmt.Print(text)
		return
	}
	if err := os.WriteFile(*out, []byte(text), 0o644); err != nil {
		fmt.Fprintf(os.Stderr, "docgen: write the reference: %v\n", err)
		os.Exit(1)
	}
}

func render(keys []v1alpha1.Key) string {
	var b bytes.Buffer
	b.WriteString(head)
	b.WriteString("\n## Keys above the first table\n\n")
	columns(&b)
	for _, k := range keys {
		if !k.Table && !strings.Contains(k.Name, ".") {
			row(&b, k, k.Name)
		}
	}
	for i, k := range keys {
		if k.Table {
			table(&b, k, keys[i+1:])
		}
	}
	b.WriteString(tail)
	return b.String()
}

// table writes the section of one table with the keys that are directly in it.
func table(b *bytes.Buffer, t v1alpha1.Key, following []v1alpha1.Key) {
	fmt.Fprintf(b, "\n## [%s]\n\n%s\n\n", t.Name, t.Doc)
	var direct []v1alpha1.Key
	for _, k := range following {
		name, inside := strings.CutPrefix(k.Name, t.Name+".")
		if inside && !k.Table && !strings.Contains(name, ".") {
			direct = append(direct, k)
		}
	}
	if len(direct) == 0 {
		return
	}
	columns(b)
	for _, k := range direct {
		row(b, k, strings.TrimPrefix(k.Name, t.Name+"."))
	}
}

func columns(b *bytes.Buffer) {
	b.WriteString("| key | type | default | flag | meaning |\n| --- | --- | --- | --- | --- |\n")
}

func row(b *bytes.Buffer, k v1alpha1.Key, name string) {
	value := "`" + k.Default + "`"
	if k.Zero != "" {
		value = k.Zero
	}
	flag := ""
	if k.Flag != "" {
		flag = "`--" + k.Flag + "`"
	}
	cells := []string{"`" + name + "`", k.Type, value, flag, k.Doc}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
