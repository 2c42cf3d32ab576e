package cli

import (
	"errors"
	"testing"
)

func TestGraverErrorDecides(t *testing.T) {
	t.Parallel()
	fine, refused, broken := error(nil), ErrFindings, errors.New("no answer")
	for i, have := range []error{Graver(fine, refused), Graver(refused, fine), Graver(broken, refused), Graver(refused, broken)} {
		if want := []error{refused, refused, broken, broken}[i]; !errors.Is(have, want) {
			t.Errorf("pair %d: have %v, want %v", i, have, want)
		}
	}
}
