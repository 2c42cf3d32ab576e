package seen

import (
	"slices"
	"testing"
	"time"

	"procaas/engine/memory"
	"procaas/engine/stats"
)

// What two nodes have seen is there after both have ended: their samples are added up, and a problem that both saw is one.
func TestEvidenceOutlivesItsNodes(t *testing.T) {
	t.Parallel()
	docs := memory.New(time.Now).Ports().Documents
	now := time.Now().Truncate(EvidenceStep * time.Second)
	ratio := 0.75
	handlers := []stats.HandlerInfo{{Path: "p/s/h", RecentCalls: 8, RecentRatio: &ratio}}
	nodes := []*Evidence{NewEvidence(docs), NewEvidence(docs)}
	for i, e := range nodes {
		for step := range 3 {
			at := now.Add(time.Duration(step-3) * EvidenceStep * time.Second)
			n := stats.Numbers{Accepted: float64(10 * step), Runs: map[string]float64{"failed": float64(step)}, LeftOut: float64(2 * step)}
			e.Take(at, n, handlers, []Incident{{Name: "orders", Is: "is down", From: at.Unix(), To: at.Unix(), Runs: 40 + i}})
			e.Take(at.Add(time.Second), n, handlers, nil) // in the same ten seconds
			if err := e.Write(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := NewEvidence(docs).Between(t.Context(), now.Add(-time.Hour), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{
		{At: now.Unix() - 30, Calls: 16, Errors: 4},
		{At: now.Unix() - 20, Calls: 16, Errors: 4, Accepted: 20, Ended: 2, Failed: 2, LeftOut: 4},
	}
	if len(all.Samples) != 3 || all.Samples[0] != want[0] || all.Samples[1] != want[1] {
		t.Errorf("want three samples that begin with %+v, have %+v", want, all.Samples)
	}
	if len(all.Wrong) != 1 || all.Wrong[0].From != now.Unix()-30 || all.Wrong[0].To != now.Unix()-10 || all.Wrong[0].Runs != 41 {
		t.Errorf("want that orders was down for 20 s, and 41 runs waited; have %+v", all.Wrong)
	}
}

// What fails and is mended between two samples is evidence, too.
func TestEvidenceOfAMoment(t *testing.T) {
	t.Parallel()
	e := NewEvidence(memory.New(time.Now).Ports().Documents)
	now := time.Now()
	for _, failed := range []float64{0, 3, 3, 4} {
		e.Take(now, stats.Numbers{Runs: map[string]float64{"failed": failed}}, nil, nil)
	}
	e.Note(now, []Incident{{Name: "orders", Is: "is down", From: now.Unix(), To: now.Unix()}})
	all, err := e.Between(t.Context(), now.Add(-time.Hour), time.Time{})
	if err != nil || len(all.Samples) != 1 || all.Samples[0].Failed != 4 || len(all.Wrong) != 1 {
		t.Errorf("want 4 failed runs and an incident in one sample, have %+v, %v", all, err)
	}
}

// A day later the same document is of another quarter of an hour.
func TestEvidenceIsOfTheLastDay(t *testing.T) {
	t.Parallel()
	docs := memory.New(time.Now).Ports().Documents
	e := NewEvidence(docs)
	now := time.Now()
	for _, at := range []time.Time{now.Add(-evidenceDay * time.Second), now} {
		e.Take(at, stats.Numbers{}, nil, nil)
		if err := e.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := NewEvidence(docs).Between(t.Context(), now.Add(-48*time.Hour), time.Time{})
	if err != nil || len(all.Samples) != 1 {
		t.Errorf("want one sample, have %+v, %v", all.Samples, err)
	}
}

// A chart of a day has no more points than one can see, and no line where no node ran.
func TestChartOfADay(t *testing.T) {
	t.Parallel()
	var c Chapter
	for at := int64(1_700_000_000); at < 1_700_000_000+evidenceDay; at += EvidenceStep {
		if at%7200 < 3600 {
			c.Samples = append(c.Samples, Sample{At: at, Calls: 4, Errors: 1, Accepted: 2 * EvidenceStep, Ended: EvidenceStep, P99: 7})
		}
	}
	columns := c.Columns(time.Now())
	gaps := 0
	for i, at := range columns[0] {
		if i > 0 && at.(int64) <= columns[0][i-1].(int64) {
			t.Fatalf("times go back at %d", i)
		}
		if columns[1][i] == nil {
			gaps++
		} else if columns[1][i] != 25.0 {
			t.Fatalf("want 25 %%, have %v", columns[1][i])
		} else if in, out := columns[4][i].(float64), columns[5][i].(float64); in <= 0 || in > 2 || in != 2*out || columns[6][i] != int64(7) {
			t.Fatalf("want at most 2 events and half as many runs a second, and 7 ms, have %v, %v, %v", in, out, columns[6][i])
		}
	}
	if len(columns[0]) > evidenceShown+30 || gaps < 11 || gaps > 12 {
		t.Errorf("have %d points and %d gaps", len(columns[0]), gaps)
	}
}

// A point that has not ended counts its own seconds: the line must not fall at its end.
func TestChartEndsAtItsRate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_004, 0)
	c := Chapter{Samples: []Sample{{At: 1_699_999_990, Accepted: 20, Ended: 10}, {At: 1_700_000_000, Accepted: 8, Ended: 4}}}
	if columns := c.Columns(now); !slices.Equal(columns[4], []any{2.0, 2.0}) || !slices.Equal(columns[5], []any{1.0, 1.0}) {
		t.Errorf("want 2 events and 1 run a second, have %v", columns[4:6])
	}
}
