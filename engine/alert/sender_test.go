package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"procaas/engine/model"
	"procaas/engine/outbound"
)

// A fakeReceiver answers requests and keeps what it took.
type fakeReceiver struct {
	mu     sync.Mutex
	answer func(alerts []string) (status int, header http.Header, err error)
	took   []string
	posts  []time.Time
	header http.Header
	log    bytes.Buffer
}

// RoundTrip implements [http.RoundTripper].
func (f *fakeReceiver) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.posts, f.header = append(f.posts, time.Now()), r.Header
	names, err := namesOf(body, time.Now())
	if err != nil {
		return nil, err
	}
	status, header := http.StatusOK, http.Header{}
	if f.answer != nil {
		if status, header, err = f.answer(names); err != nil {
			return nil, err
		}
	}
	if status/100 == 2 {
		f.took = append(f.took, names...)
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: header, Body: io.NopCloser(strings.NewReader("because")),
		Request: r,
	}, nil
}

// namesOf reads the alerts of a request of either kind: which ones, and whether
// they fire (+) or have ended (-).
func namesOf(body []byte, now time.Time) (names []string, err error) {
	sign := func(fires bool) string {
		if fires {
			return "+"
		}
		return "-"
	}
	var posted []postableAlert
	if json.Unmarshal(body, &posted) == nil {
		for _, p := range posted {
			names = append(names, sign(p.EndsAt.After(now))+p.Labels["path"])
		}
		return names, nil
	}
	var hook webhookBody
	err = json.Unmarshal(body, &hook)
	for _, a := range hook.Alerts {
		names = append(names, sign(a.Status == "firing")+a.Path)
	}
	return names, err
}

func (f *fakeReceiver) taken() []string {
	synctest.Wait() // for what is due at this very moment
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.took
	f.took = nil
	return out
}

// logged returns the log.
func (f *fakeReceiver) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// Write takes the log.
func (f *fakeReceiver) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

// send runs a sender with a receiver.
func (f *fakeReceiver) sender(t *testing.T, kind string) (s *sender, registry *prometheus.Registry, stop func()) {
	registry = prometheus.NewRegistry()
	u, err := parseURL("https://user:canary@hooks.example/T0/canary")
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{Breakers: new(outbound.Breakers), Server: "http://here", Node: "n1", Log: slog.New(slog.NewTextHandler(f, nil))}
	s = newSender(kind, u, o, newCounts(registry))
	s.client = o.Breakers.Guard("alerts", &http.Client{Transport: f}, awayPause)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return s, registry, stop
}

// kept counts what a sender knows.
func (s *sender) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

func firing(path string) Alert { return Alert{Kind: RunFailed, Path: path, Since: time.Now()} }

func over(a Alert) Alert { a.Ended = time.Now(); return a }

func wantTaken(t *testing.T, f *fakeReceiver, want ...string) {
	t.Helper()
	if have := f.taken(); !slices.Equal(have, want) {
		t.Errorf("want told %q, have %q", want, have)
	}
}

func TestAlertmanagerIsToldAgainAndWebhooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var manager, hook fakeReceiver
		m, _, _ := manager.sender(t, kindAlertmanager)
		h, _, _ := hook.sender(t, kindWebhook)
		a := firing("a")
		for _, s := range []*sender{m, h} {
			s.put(a)
			s.put(a) // a sweep later
		}
		wantTaken(t, &manager, "+a")
		wantTaken(t, &hook, "+a")
		time.Sleep(3*resend + time.Second)
		wantTaken(t, &manager, "+a", "+a", "+a")
		wantTaken(t, &hook)
		for _, s := range []*sender{m, h} {
			s.put(over(a))
		}
		wantTaken(t, &manager, "-a")
		wantTaken(t, &hook, "-a")
		time.Sleep(5 * resend)
		wantTaken(t, &manager)
		if n := m.kept() + h.kept(); n != 0 {
			t.Errorf("want nothing kept, have %d", n)
		}
	})
}

func TestReceiverThatIsAwayIsToldTheNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fakeReceiver
		away := true
		f.answer = func([]string) (int, http.Header, error) {
			if away {
				return 0, nil, errors.New("refused")
			}
			return http.StatusOK, nil, nil
		}
		s, _, _ := f.sender(t, kindWebhook)
		a, b, c := firing("a"), firing("b"), firing("c")
		s.put(a)
		synctest.Wait()
		s.put(b)
		s.put(over(b)) // before anybody was told
		s.put(c)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		f.mu.Lock()
		n := len(f.posts)
		f.mu.Unlock()
		if n < 12 || n > 16 {
			t.Errorf("want five requests at first, then one a minute, have %d in ten", n)
		}
		s.put(over(a))
		f.mu.Lock()
		away = false
		f.mu.Unlock()
		time.Sleep(2 * awayPause)
		wantTaken(t, &f, "-a", "+c")
		if strings.Contains(f.logged(), "canary") {
			t.Errorf("want no secret of the URL logged, have %s", f.logged())
		}
		synctest.Wait()
		if user, password, ok := (&http.Request{Header: f.header}).BasicAuth(); !ok || user != "user" || password != "canary" {
			t.Errorf("want the user of the URL sent, have %v", f.header)
		}
	})
}

func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fakeReceiver
		f.answer = func([]string) (int, http.Header, error) {
			if len(f.posts) == 1 {
				return http.StatusTooManyRequests, http.Header{"Retry-After": {"90"}}, nil
			}
			return http.StatusOK, nil, nil
		}
		s, _, _ := f.sender(t, kindWebhook)
		s.put(firing("a"))
		time.Sleep(89 * time.Second)
		wantTaken(t, &f)
		time.Sleep(2 * time.Second)
		wantTaken(t, &f, "+a")
	})
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		if d, ok := outbound.RetryAfter(http.Header{"Retry-After": {at}}, time.Now()); !ok || d != 90*time.Second {
			t.Errorf("want 90s until the date %s, have %s", at, d)
		}
	})
}

func TestOneBadAlertDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fakeReceiver
		f.answer = func(alerts []string) (int, http.Header, error) {
			if slices.Contains(alerts, "+p07") {
				return http.StatusBadRequest, nil, nil
			}
			return http.StatusOK, nil, nil
		}
		s, registry, _ := f.sender(t, kindAlertmanager)
		for i := range 20 {
			s.put(firing(fmt.Sprintf("p%02d", i)))
		}
		synctest.Wait()
		if have := f.taken(); len(have) != 19 || slices.Contains(have, "+p07") {
			t.Errorf("want nineteen told, have %q", have)
		}
		if !strings.Contains(f.logged(), "path=p07") {
			t.Errorf("want the refused one logged, have %s", f.logged())
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "procaas_alerts_dropped_total" && family.GetMetric()[0].GetCounter().GetValue() != 1 {
				t.Errorf("want one dropped, have %v", family)
			}
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) != 0 {
			t.Errorf("want good names, have %v, %v", problems, err)
		}
	})
}

func TestLastAlertsAreToldAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fakeReceiver
		f.answer = func([]string) (int, http.Header, error) {
			if len(f.posts) == 1 {
				return http.StatusBadGateway, nil, nil
			}
			return http.StatusOK, nil, nil
		}
		s, _, stop := f.sender(t, kindWebhook)
		s.put(firing("a"))
		synctest.Wait()
		stop()
		wantTaken(t, &f, "+a")
	})
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fakeReceiver
		f.answer = func([]string) (int, http.Header, error) { return 0, nil, errors.New("away") }
		s, _, _ := f.sender(t, kindWebhook)
		for i := range maxItems + 10 {
			s.put(firing(fmt.Sprint(i)))
		}
		if n := s.kept(); n != maxItems {
			t.Errorf("want %d kept, have %d", maxItems, n)
		}
		a, err := New(Options{Webhooks: []string{"http://127.0.0.1:1/"}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for range maxPending + 10 { // nobody runs it: notices must not wait for that
			a.Notice(model.Notice{Kind: model.NoticeRunFailed, Path: "a"})
		}
		if n := len(a.take()); n != maxPending {
			t.Errorf("want %d notices kept, have %d", maxPending, n)
		}
	})
}

func TestReceiversMustBeURLs(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"alertmanager:9093", "/api", "ftp://a", "http://", "http://user:canary@\x7f/"} {
		_, err := New(Options{Alertmanagers: []string{text}, Log: slog.New(slog.DiscardHandler)})
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: want an error without secrets, have %v", text, err)
		}
	}
	if a, err := New(Options{}); a != nil || err != nil {
		t.Errorf("want none when nobody is told, have %v, %v", a, err)
	}
}
