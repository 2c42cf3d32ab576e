package handoff

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"procaas/engine"
)

// mostOrder bounds the body of an order in bytes. A hundred thousand partitions fit.
const mostOrder = 1 << 20

// A Refusal is the body of the answer to a refused order.
type Refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`            // one of the codes
	Heard  int64  `json:"heard,omitempty"` // the newest version that the worker knows, for outdated and not_held
}

// These are the codes of refusals.
const (
	CodeOutdated    = "outdated"    // 409: the worker knows a newer assignment
	CodeMisdirected = "misdirected" // 422: the order is for another cluster, or invalid
	CodeMalformed   = "malformed"   // 400: the body is not an order
	CodeUnknown     = "unknown"     // 401: the order does not have the token of the cluster
	CodeNotHeld     = "not_held"    // 421, for requests: the partition is not served here
)

// Routes serves orders and the state over HTTP, at the paths of the protocol. If the holder has a
// token, orders without it change nothing. The state needs no token.
func (h *Holder) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, h.State()) })
	orders := map[string]func(context.Context, Order) (State, error){
		PathPrepare: func(_ context.Context, o Order) (State, error) { return h.Prepare(o) },
		PathWarm:    func(_ context.Context, o Order) (State, error) { return h.Warm(o) },
		PathTake:    func(_ context.Context, o Order) (State, error) { return h.Take(o) },
		PathRelease: h.Release,
	}
	for path, follow := range orders {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if !h.known(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				refuse(w, Refusal{
					Title: "The order is not known to be the balancer's", Status: http.StatusUnauthorized, Code: CodeUnknown,
					Detail: "want Authorization: Bearer and the token of the cluster, which the balancer finds by secret: in clusters:",
				})
				return
			}
			obeyed(w, r, follow)
		})
	}
	return mux
}

// known reports whether a request has the token, in constant time.
func (h *Holder) known(r *http.Request) bool {
	if h.options.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	have, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(h.options.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(have[:], want[:]) == 1
}

// obeyed decodes an order, follows it, and answers with the worker's state.
func obeyed(w http.ResponseWriter, r *http.Request, follow func(context.Context, Order) (State, error)) {
	var o Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostOrder)).Decode(&o); err != nil {
		refuse(w, Refusal{
			Title: "The body is not an order", Status: http.StatusBadRequest, Code: CodeMalformed,
			Detail: fmt.Sprintf(`want {"cluster": …, "version": …, "partitions": […]}: %v`, err),
		})
		return
	}
	state, err := follow(r.Context(), o)
	var outdated *OutdatedError
	switch {
	case errors.As(err, &outdated):
		refuse(w, Refusal{
			Title: "The order is outdated", Status: http.StatusConflict, Code: CodeOutdated, Detail: err.Error(), Heard: outdated.Heard,
		})
	case err != nil:
		refuse(w, Refusal{
			Title: "The order is not for this worker", Status: http.StatusUnprocessableEntity, Code: CodeMisdirected,
			Detail: err.Error(),
		})
	default:
		answer(w, http.StatusOK, state)
	}
}

// NotHeld answers a request for a partition that this worker does not serve, without looking at the
// request. Its sender should ask again for the owner. version is the newest that the worker knows.
func NotHeld(w http.ResponseWriter, partition int, version int64) {
	w.Header().Set(engine.HeaderAssignment, strconv.FormatInt(version, 10))
	refuse(w, Refusal{
		Title: "The partition is not served here", Status: http.StatusMisdirectedRequest, Code: CodeNotHeld,
		Detail: fmt.Sprintf("partition %d is not held by this worker", partition), Heard: version,
	})
}

// refuse answers with a problem as in RFC 9457.
func refuse(w http.ResponseWriter, r Refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, r.Status, r)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	write(w, status, v)
}

// write writes the reply. An error means that the client has gone.
func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode a reply: %w", err))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
