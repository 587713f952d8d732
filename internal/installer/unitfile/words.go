package unitfile

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.run/internal/errdefs"
)

// word is one word of a value. It is bare if nothing of it was quoted or escaped.
type word struct {
	text string
	bare bool
}

// words splits a value as systemd does (systemd.syntax(7), "Quoting"), and fills in
// specifiers.
func (s *service) words(value string) ([]word, error) {
	var all []word
	for rest := strings.TrimLeft(value, blank); rest != ""; rest = strings.TrimLeft(rest, blank) {
		var w word
		var err error
		if w, rest, err = next(rest); err != nil {
			return nil, fmt.Errorf("%q: %w", value, err)
		}
		if w.text, err = s.specifiers(w.text); err != nil {
			return nil, fmt.Errorf("%q: %w", value, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// next takes the first word off a text that begins with one.
func next(text string) (word, string, error) {
	var b strings.Builder
	w := word{bare: true}
	quote := byte(0)
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			r, n := unescape(text[i+1:])
			b.WriteString(r)
			i += 1 + n
			w.bare = false
			continue
		case quote == 0 && (c == ' ' || c == '\t'):
			w.text = b.String()
			return w, text[i:], nil
		case quote == 0 && (c == '"' || c == '\''):
			quote, w.bare = c, false
		case quote != 0 && c == quote:
			quote = 0
		default:
			b.WriteByte(c)
		}
		i++
	}
	w.text = b.String()
	if quote != 0 {
		return w, "", fmt.Errorf("a quote is not closed: %w", errdefs.ErrInvalidArgument)
	}
	return w, "", nil
}

// escapes are those of one letter.
const escapes = "a\ab\bf\fn\nr\rt\tv\vs "

// unescape is what follows a backslash, and how many bytes that takes.
func unescape(text string) (string, int) {
	c := text[0]
	if at := strings.IndexByte(escapes, c); at >= 0 && at%2 == 0 {
		return escapes[at+1 : at+2], 1
	}
	for _, form := range []struct {
		letter       byte
		digits, base int
	}{{'x', 2, 16}, {'u', 4, 16}, {'U', 8, 16}} {
		if c != form.letter || len(text) <= form.digits {
			continue
		}
		n, err := strconv.ParseUint(text[1:1+form.digits], form.base, 32)
		if err != nil {
			break
		}
		if c == 'x' {
			return string([]byte{byte(n)}), 1 + form.digits
		}
		return string(rune(n)), 1 + form.digits
	}
	if len(text) >= 3 && c >= '0' && c <= '3' {
		if n, err := strconv.ParseUint(text[:3], 8, 8); err == nil {
			return string([]byte{byte(n)}), 3
		}
	}
	_, size := utf8.DecodeRuneInString(text)
	if strings.ContainsRune(`"'\;`, rune(c)) {
		return text[:size], size
	}
	return `\` + text[:size], size
}

// specifiers are filled in where files say them.
func (s *service) specifiers(text string) (string, error) {
	stem := strings.TrimSuffix(s.unit, filepath.Ext(s.unit))
	known := map[byte]string{
		'%': "%", 'n': s.unit, 'N': stem, 'p': stem, 't': "/run", 'E': "/etc", 'S': "/var/lib", 'C': "/var/cache", 'L': "/var/log", 'T': "/tmp", 'V': "/var/tmp",
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "%")
		b.WriteString(before)
		if !ok || after == "" {
			return b.String(), nil
		}
		value, ok := known[after[0]]
		if !ok {
			return "", fmt.Errorf("%%%c stands for what files do not say: %w", after[0], errdefs.ErrInvalidArgument)
		}
		b.WriteString(value)
		text = after[1:]
	}
}

// expand fills in variables: ${NAME} anywhere, and $NAME as a word of its own, which may
// become several or none.
func expand(text string, env map[string]string) []string {
	if name, ok := strings.CutPrefix(text, "$"); ok && name != "" && name[0] != '{' && name[0] != '$' {
		return strings.Fields(env[name])
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "$")
		b.WriteString(before)
		if !ok {
			return []string{b.String()}
		}
		name, rest, closed := strings.Cut(after, "}")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{") && closed:
			b.WriteString(env[name[1:]])
			text = rest
		default:
			b.WriteByte('$')
			text = after
		}
	}
}
