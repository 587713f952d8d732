package runtimeclass

// longestSlip is the longest name that is taken for a slip of the finger, in bytes, and
// how many fit into a word of the machine.
const longestSlip = 64

// nearest is the candidate that differs from word by the fewest letters, or ""
// if all differ by more than a third of it. Of those that are as near, it is the first.
func nearest(word string, candidates []string) string {
	if len(word) > longestSlip {
		return ""
	}
	from := slipOf(word)
	best, most := "", len(word)/3+1
	for _, c := range candidates {
		// The difference in length is the least that the distance can be.
		if d := len(c) - len(word); d > most || -d > most {
			continue
		}
		if d := from.distance(c, most); d < most || d == most && best == "" {
			best, most = c, d
		}
	}
	return best
}

// slip is a word that others are compared with: for each byte, the places where the
// word has it.
type slip struct {
	length int
	at     [256]uint64
}

func slipOf(word string) *slip {
	s := &slip{length: len(word)}
	for i := range len(word) {
		s.at[word[i]] |= 1 << i
	}
	return s
}

// distance is the number of letters to add, drop or change between the word and text,
// or any number above most if it is more than that.
//
// The table of distances between all beginnings of the two is gone through by columns. In
// one, neighbours differ by one or not at all, so that two words of the machine hold a
// column: where it goes up, and where down. A column follows from the one before by a
// few operations (G. Myers, A Fast Bit-Vector Algorithm, 1999; H. Hyyro, 2001).
func (s *slip) distance(text string, most int) int {
	if s.length == 0 {
		return len(text)
	}
	up, down, d, last := ^uint64(0), uint64(0), s.length, uint64(1)<<(s.length-1)
	for i := range len(text) {
		same := s.at[text[i]]
		vertical := same | down
		horizontal := (((same & up) + up) ^ up) | same
		rises, falls := down|^(horizontal|up), up&horizontal
		if rises&last != 0 {
			d++
		} else if falls&last != 0 {
			d--
		}
		if least := d - (len(text) - 1 - i); least > most {
			return least
		}
		rises, falls = rises<<1|1, falls<<1
		up, down = falls|^(vertical|rises), rises&vertical
	}
	return d
}
