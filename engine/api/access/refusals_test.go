package access

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusalsDoNotFillTheAudit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f refusals
		told := func(token string, calls int) (n int) {
			for i := range calls {
				if f.first(token, fmt.Sprint("GET /", i)) {
					n++
				}
			}
			return n
		}
		if have := told("ann", 1) + told("ann", 1); have != 1 {
			t.Errorf("want the same refusal told once, have %d", have)
		}
		if have := told("bob", 1000); have != mostRefusalsEach {
			t.Errorf("want %d of one token, have %d", mostRefusalsEach, have)
		}
		all := 0
		for i := range 1000 {
			all += told(fmt.Sprint("token-", i), 5)
		}
		if all != mostRefusals-1-mostRefusalsEach {
			t.Errorf("want %d of all tokens, have %d", mostRefusals, all)
		}
		time.Sleep(refusalWindow)
		if have := told("ann", 1); have != 1 {
			t.Errorf("want it told again after a while, have %d", have)
		}
	})
}
