package addon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/clock"
	"procaas/handlers/balancer/handoff/reference"
)

// A keyLoad sends requests for many keys, one of which becomes hot.
type keyLoad struct {
	url     string
	options clusterDemoOptions
	client  *http.Client
	began   time.Time

	mu   sync.Mutex // guards the following fields
	sum  keyCounts
	told bool // whether the hot key was reported
}

// keyCounts are the outcomes of requests.
type keyCounts struct {
	Requests int     `json:"requests"`
	Dropped  int     `json:"dropped"` // by an overloaded worker
	Failed   int     `json:"failed"`
	Moves    int     `json:"moves"`
	Highest  float64 `json:"gini_highest"` // since the key became hot, or at all
	Gini     float64 `json:"gini"`
	Failure  string  `json:"failure,omitempty"` // the first error
}

func newKeyLoad(url string, o clusterDemoOptions) *keyLoad {
	return &keyLoad{
		url: url, options: o, began: time.Now(),
		client: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: mostSenders}},
	}
}

// mostSenders is the maximum number of requests in flight.
const mostSenders = 64

// demoKeys is the number of keys, without the hot one.
const demoKeys = 5000

// gentleStart is how long the load takes to reach its full rate, since workers have cold caches at first.
const gentleStart = 10 * time.Second

// run sends requests at the rate until ctx ends.
func (l *keyLoad) run(ctx context.Context) {
	defer l.client.CloseIdleConnections()
	due := make(chan string)
	var senders sync.WaitGroup
	for range mostSenders {
		senders.Go(func() {
			for key := range due {
				l.send(ctx, key)
			}
		})
	}
	defer senders.Wait()
	defer close(due)
	const tick = 20 * time.Millisecond
	owed := 0.0
	for clock.Pause(ctx, tick) {
		owed += l.options.rate * tick.Seconds() * min(1, float64(time.Since(l.began))/float64(gentleStart))
		for ; owed >= 1; owed-- {
			key := fmt.Sprint("user-", rand.N(demoKeys))
			if l.hot() && rand.Float64() < l.options.hotShare {
				key = "channel-1"
			}
			select {
			case due <- key:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *keyLoad) hot() bool {
	return l.options.hotAfter > 0 && time.Since(l.began) > l.options.hotAfter
}

func (l *keyLoad) send(ctx context.Context, key string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/keys/"+key, nil)
	if err != nil {
		l.note(0, err)
		return
	}
	reply, err := l.client.Do(r)
	if ctx.Err() != nil {
		if err == nil {
			reply.Body.Close()
		}
		return // cancelled at the end
	}
	if err != nil {
		l.note(0, err)
		return
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, 4<<10))
	switch {
	case err != nil && ctx.Err() == nil:
		l.note(0, err)
	case reply.StatusCode == http.StatusServiceUnavailable && reply.Header.Get(reference.HeaderDropped) != "":
		l.note(reply.StatusCode, nil)
	case reply.StatusCode != http.StatusOK:
		l.note(0, fmt.Errorf("%s: %s", reply.Status, text))
	default:
		l.note(http.StatusOK, nil)
	}
}

// note counts a request.
func (l *keyLoad) note(status int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Requests++
	switch {
	case err != nil:
		l.sum.Failed++
		if l.sum.Failure == "" {
			l.sum.Failure = err.Error()
		}
	case status != http.StatusOK:
		l.sum.Dropped++
	}
}

func (l *keyLoad) counts() keyCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

// gini records the current Gini index.
func (l *keyLoad) gini(x float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Gini = x
	if l.hot() || l.options.hotAfter <= 0 {
		l.sum.Highest = max(l.sum.Highest, x)
	}
}

func (l *keyLoad) moved(moves int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Moves = moves
}

// news returns once that the key has become hot.
func (l *keyLoad) news() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told || !l.hot() {
		return ""
	}
	l.told = true
	return fmt.Sprintf("   channel-1 is hot: %.0f %% of the requests", 100*l.options.hotShare)
}

// conclude prints the summary.
func (l *keyLoad) conclude(s cli.Streams, format string) error {
	sum := l.counts()
	var err error
	if format == "json" {
		err = s.PrintJSON(sum)
	} else {
		err = s.Printf("%d requests, %d failed, %d dropped by workers that had too much to do, %d moves, Gini %.2f at most and "+
			"%.2f at the end\n",
			sum.Requests, sum.Failed, sum.Dropped, sum.Moves, sum.Highest, sum.Gini)
		if err == nil && sum.Failure != "" {
			fmt.Fprintln(s.Err, "the first failure:", sum.Failure)
		}
	}
	return cmp.Or(err, cli.FindingsIf(sum.Failed > 0))
}
