package perfevent

import (
	"debug/elf"
	"debug/gosym"
	"fmt"
)

// Program knows the functions of a Go program. Those that the compiler has put
// into others are not told apart from them.
type Program struct{ functions *gosym.Table }

// Open reads a program's file. It may be stripped: Go programs keep the names of
// their functions. It has to be one that runs where its file says, and without C.
func Open(path string) (*Program, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the functions of %s: %w", path, err)
	}
	defer f.Close()
	text, lines := f.Section(".text"), f.Section(".gopclntab")
	if f.Type != elf.ET_EXEC || text == nil || lines == nil {
		return nil, fmt.Errorf("read the functions of %s: it is no Go program at fixed addresses (%s)", path, f.Type)
	}
	data, err := lines.Data()
	if err != nil {
		return nil, fmt.Errorf("read the functions of %s: %w", path, err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, fmt.Errorf("read the functions of %s: %w", path, err)
	}
	if len(table.Funcs) == 0 {
		return nil, fmt.Errorf("read the functions of %s: this build does not know its tables", path)
	}
	return &Program{table}, nil
}

// Names are the functions that a sample's addresses are in. An address that is in
// none, of the kernel's page of system calls for instance, has no name.
func (p *Program) Names(pcs []uint64) (out []string) {
	for i, pc := range pcs {
		if i > 0 {
			pc-- // it would return to what is after the call
		}
		if f := p.functions.PCToFunc(pc); f != nil {
			out = append(out, f.Name)
		}
	}
	return out
}
