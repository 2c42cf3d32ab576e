package pgkit

import (
	"errors"
	"testing"
	"time"
)

func TestRefusedLoginsBackOff(t *testing.T) {
	t.Parallel()
	refused := errors.New("password authentication failed")
	l, now, tries := &logins{}, time.Now(), 0
	for range 6000 { // a minute of a node that asks 100 times a second
		if l.may("old", now) == nil {
			tries++
			l.failed(refused, now)
		}
		now = now.Add(10 * time.Millisecond)
	}
	if tries > 16 {
		t.Errorf("want at most 16 logins in a minute, have %d", tries)
	}
	if err := l.may("old", now); !errors.Is(err, refused) {
		t.Errorf("want the reason of the server, have %v", err)
	}
	if err := l.may("new", now); err != nil {
		t.Errorf("want a new password tried at once, have %v", err)
	}
	l.succeeded()
	if err := l.may("new", now); err != nil {
		t.Errorf("want no pause after a success, have %v", err)
	}
}
