package enginetest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"
)

// A Proxy is between a node and its PostgreSQL server on loopback, and behaves like a bad network.
// It cuts and refuses connections, delays bytes, and loses the answers to commits. Each fault ends
// by itself.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex // guards the following
	links   map[*link]struct{}
	closed  bool
	refused time.Time     // refuse new connections until then
	held    time.Time     // hold bytes until then
	slow    time.Time     // delay bytes until then
	late    time.Duration // the delay
	share   float64       // of commits whose answers are lost
	random  *rand.Rand
	lost    int // answers
}

// StartProxy starts a proxy in front of the server at target, a host and port.
func StartProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}}
	p.work.Go(p.serve)
	return p, nil
}

// Close closes all connections, and returns when nothing of the proxy is left.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.work.Wait()
	return err
}

// Addr returns the proxy's address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Through returns the URL of a database with the proxy instead of its server.
func (p *Proxy) Through(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("proxy: %w", err)
	}
	u.Host = p.Addr()
	return u.String(), nil
}

// Cut breaks all connections, as if one end had crashed. Held bytes are lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Refuse breaks all connections and accepts no new ones for a time.
func (p *Proxy) Refuse(d time.Duration) {
	p.mu.Lock()
	p.refused = time.Now().Add(d)
	p.mu.Unlock()
	p.Cut()
}

// Hold holds all bytes in both directions for a time, or until it is called with 0. Then it
// delivers them, even those of a side that has closed its end meanwhile.
func (p *Proxy) Hold(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = time.Now().Add(d)
}

// Delay delays all bytes for a time.
func (p *Proxy) Delay(by, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late, p.slow = by, time.Now().Add(d)
}

// LoseCommits loses the answers to a share of the commits until it is called with 0. The proxy
// passes a commit on and then breaks the connection, at once or when the answer arrives. The
// outcome is unknown to the sender.
func (p *Proxy) LoseCommits(share float64, seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.share, p.random = share, rand.New(rand.NewPCG(seed, 0))
}

// Lost returns the number of lost answers to commits.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.connect(client) })
	}
}

// connect connects a client with the server until both ends are closed.
func (p *Proxy) connect(client net.Conn) {
	l := &link{p: p, client: client.(*net.TCPConn), gone: make(chan struct{})}
	defer l.client.Close()
	if !p.admit(l) {
		_ = l.client.SetLinger(0)
		return
	}
	defer p.dismiss(l)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = l.client.SetLinger(0)
		return
	}
	if !l.join(server.(*net.TCPConn)) {
		return
	}
	defer l.server.Close()
	up := commitFinder{statements: map[string]statement{}}
	var both sync.WaitGroup
	both.Go(func() {
		l.pass(l.server, l.client, func(b []byte) {
			if up.find(b) {
				p.maybeLose(l)
			}
		})
	})
	both.Go(func() { l.pass(l.client, l.server, func([]byte) { l.answered() }) })
	both.Wait()
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || time.Now().Before(p.refused) {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) dismiss(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// maybeLose decides about the answer to a commit that is about to be passed on.
func (p *Proxy) maybeLose(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share == 0 || p.random.Float64() >= p.share {
		return
	}
	p.lost++
	l.lose(p.random.IntN(2) == 0)
}

// wait waits while bytes are held, which may change meanwhile. It returns false if the link breaks
// first.
func (p *Proxy) wait(l *link) bool {
	const tick = 5 * time.Millisecond
	p.mu.Lock()
	var until time.Time
	if now := time.Now(); now.Before(p.slow) {
		until = now.Add(p.late)
	}
	p.mu.Unlock()
	for {
		p.mu.Lock()
		left := max(time.Until(until), time.Until(p.held))
		p.mu.Unlock()
		if left <= 0 {
			return true
		}
		t := time.NewTimer(min(left, tick))
		select {
		case <-l.gone:
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// A link is one connection through a proxy.
type link struct {
	p      *Proxy
	client *net.TCPConn

	once sync.Once
	gone chan struct{} // closed: the link is broken

	mu     sync.Mutex // guards the following
	server *net.TCPConn
	losing losing
}

// A losing says what happens to the server's answers.
type losing int

const (
	losingNothing     losing = iota
	losingAtAnswer           // break at the first byte of the answer
	losingWhenWritten        // break when the commit was passed on
)

// join sets the server's end. It returns false if the link is already broken.
func (l *link) join(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gone:
		_ = server.Close()
		return false
	default:
		l.server = server
		return true
	}
}

// reset breaks both ends.
func (l *link) reset() {
	l.once.Do(func() { close(l.gone) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range []*net.TCPConn{l.client, l.server} {
		if end != nil {
			_ = end.SetLinger(0)
			_ = end.Close()
		}
	}
}

// breakOff lets the server receive what it was sent, and drops the client.
func (l *link) breakOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.client.SetLinger(0)
	_ = l.client.Close()
	_ = l.server.CloseWrite()
}

func (l *link) lose(atOnce bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing = losingAtAnswer
	if atOnce {
		l.losing = losingWhenWritten
	}
}

func (l *link) state() losing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losing
}

// answered is called before the server's bytes are passed on.
func (l *link) answered() {
	if l.state() != losingNothing { // the answer may arrive before the other direction has broken the link
		l.breakOff()
	}
}

// pass copies one direction. If one side accepts no more, it still reads the other to its end, so
// that each end notices the other's end only by a close.
func (l *link) pass(to, from *net.TCPConn, look func([]byte)) {
	buffer := make([]byte, 64<<10)
	broken := false
	for {
		n, err := from.Read(buffer)
		if n > 0 && !broken {
			look(buffer[:n])
			if !l.p.wait(l) {
				return
			}
			_, wrong := to.Write(buffer[:n])
			broken = wrong != nil
			if to == l.server && l.state() == losingWhenWritten {
				l.breakOff()
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				broken = true
			}
			_ = to.CloseWrite()
			return
		}
	}
}
