package onepass

import (
	"unicode/utf16"
	"unicode/utf8"
)

// mostDepth bounds how deep values stand in each other. Objects of Kubernetes reach
// a tenth of it.
const mostDepth = 200

// reader goes through a text. All its methods say whether they could go on; if one
// could not, nothing more is read.
type reader struct {
	text  []byte
	at    int
	depth int
}

// next is the byte that follows spaces, and 0 at the end. It is not passed.
func (r *reader) next() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// pass goes over one byte, which must be this.
func (r *reader) pass(c byte) bool {
	if r.next() != c {
		return false
	}
	r.at++
	return true
}

// enter goes into an object or a list; empty says that it is over already.
func (r *reader) enter(begin, end byte) (empty, ok bool) {
	if r.depth++; r.depth > mostDepth || !r.pass(begin) {
		return false, false
	}
	if r.next() != end {
		return false, true
	}
	r.at++
	r.depth--
	return true, true
}

// more says whether another member follows.
func (r *reader) more(end byte) (again, ok bool) {
	switch r.next() {
	case ',':
		r.at++
		return true, true
	case end:
		r.at++
		r.depth--
		return false, true
	}
	return false, false
}

// word passes a literal.
func (r *reader) word(w string) bool {
	r.next()
	if end := r.at + len(w); end <= len(r.text) && string(r.text[r.at:end]) == w {
		r.at = end
		return true
	}
	return false
}

// special are the bytes of a string at which there is something to do.
var special = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	for c := 0x80; c < 256; c++ {
		t[c] = true
	}
	return t
}()

// span passes a string and returns what is between the quotes. Its escapes are
// right; plain says that it has none, and nothing but ASCII.
func (r *reader) span() (inside []byte, plain, ok bool) {
	if !r.pass('"') {
		return nil, false, false
	}
	plain = true
	for i, begin := r.at, r.at; i < len(r.text); i++ {
		c := r.text[i]
		if !special[c] {
			continue
		}
		switch {
		case c == '"':
			r.at = i + 1
			return r.text[begin:i], plain, true
		case c == '\\':
			n := escape(r.text[i:])
			if n == 0 {
				return nil, false, false
			}
			i += n - 1
		case c < 0x20:
			return nil, false, false
		}
		plain = false
	}
	return nil, false, false
}

// escape is the length of the escape that a text begins with; 0 is none.
func escape(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex(text); ok {
			return 6
		}
	}
	return 0
}

// hex reads four digits after "\u".
func hex(text []byte) (out rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, c := range text[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		out = out<<4 | rune(c)
	}
	return out, true
}

// chars passes a string and returns it as it is meant. It may point into the text.
func (r *reader) chars() ([]byte, bool) {
	inside, plain, ok := r.span()
	if plain || !ok {
		return inside, ok
	}
	if !utf8.Valid(inside) {
		return nil, false // what stands for it others decide
	}
	out := make([]byte, 0, len(inside))
	for i := 0; i < len(inside); {
		c := inside[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		if inside[i+1] != 'u' {
			out = append(out, escaped[inside[i+1]])
			i += 2
			continue
		}
		char, _ := hex(inside[i:])
		i += 6
		if utf16.IsSurrogate(char) {
			second, _ := hex(inside[i:])
			if char = utf16.DecodeRune(char, second); char == utf8.RuneError {
				return nil, false
			}
			i += 6
		}
		out = utf8.AppendRune(out, char)
	}
	return out, true
}

// escaped is what stands for a byte after a backslash.
var escaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// number passes a number and returns it as it is written.
func (r *reader) number() ([]byte, bool) {
	r.next()
	begin := r.at
	if r.peek() == '-' {
		r.at++
	}
	if r.peek() == '0' {
		r.at++
	} else if !r.digits() {
		return nil, false
	}
	if r.peek() == '.' {
		if r.at++; !r.digits() {
			return nil, false
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		r.at++
		if c := r.peek(); c == '+' || c == '-' {
			r.at++
		}
		if !r.digits() {
			return nil, false
		}
	}
	return r.text[begin:r.at], true
}

// peek is the next byte, be it a space; 0 is the end.
func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *reader) digits() bool {
	begin := r.at
	for c := r.peek(); c >= '0' && c <= '9'; c = r.peek() {
		r.at++
	}
	return r.at > begin
}

// skip passes any value.
func (r *reader) skip() bool {
	switch c := r.next(); c {
	case '{', '[':
		return r.skipMembers(c, c+2) // that is what closes it, in ASCII
	case '"':
		_, _, ok := r.span()
		return ok
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	_, ok := r.number()
	return ok
}

func (r *reader) skipMembers(begin, end byte) bool {
	empty, ok := r.enter(begin, end)
	if empty || !ok {
		return ok
	}
	for {
		if begin == '{' {
			if _, _, ok := r.span(); !ok || !r.pass(':') {
				return false
			}
		}
		if !r.skip() {
			return false
		}
		if again, ok := r.more(end); !again {
			return ok
		}
	}
}
