package stub

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A Player answers for the services of a spec without a network, for tests in
// virtual time. It is not safe for concurrent use.
type Player struct {
	server   *Server
	services []*service
}

// Play makes a player without calls.
func Play(spec *Spec) (*Player, error) {
	p := &Player{server: &Server{journal: newJournal()}}
	for i, declared := range spec.Services {
		svc, err := newService(p.server, declared, mix(uint64(spec.Seed), i))
		if err != nil {
			return nil, fmt.Errorf("stub service %s: %w", declared.ID, err)
		}
		p.services = append(p.services, svc)
	}
	return p, nil
}

// Answer returns the answer of the service with an id, or with the address of the request, and how
// long it takes. A nil reply means that the service hangs up. ok is false if there is no such
// service.
func (p *Player) Answer(id string, r *http.Request) (reply *http.Response, after time.Duration, ok bool) {
	for _, svc := range p.services {
		if svc.spec.ID != id && (id != "" || svc.spec.Listen != r.URL.Host) {
			continue
		}
		a := svc.answer(r)
		if a.status == hangUp {
			return nil, a.latency, true
		}
		return a.reply(r), a.latency, true
	}
	return nil, 0, false
}

// reply makes the response that a client would get.
func (a answer) reply(r *http.Request) *http.Response {
	w := &replyWriter{header: http.Header{}}
	a.write(w)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Request: r,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
	}
}

// A replyWriter is a [http.ResponseWriter] that keeps what is written.
type replyWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *replyWriter) Header() http.Header         { return w.header }
func (w *replyWriter) WriteHeader(status int)      { w.status = status }
func (w *replyWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
