// Package socket reads and writes sockets without the scheduler of Go. The scheduler must know of a
// call of the system that may take long, since its goroutine keeps a processor. The runtime looks for
// such calls as often as each 20 µs while it finds some, and moves their processors to other threads.
// Sockets of this program never wait, but a write to a local peer often takes that long, because the
// system handles the arrival in it. Under the race detector, which learns from the runtime what happened
// before an arrival, the runtime makes the calls.
package socket
