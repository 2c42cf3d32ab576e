package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// A ShardBatch asks where many keys live.
type ShardBatch struct {
	Keys   []string `json:"keys" maxItems:"1000" doc:"The keys, each with its parts joined by slashes."`
	Mode   string   `json:"mode,omitempty" enum:"master,replica,any" doc:"What the hosts are for; master when it is left out."`
	MaxLag any      `json:"max-lag,omitempty" doc:"How far a replica may be behind: text such as 2s, or a number of seconds."`
	MinLSN string   `json:"min-lsn,omitempty" doc:"The position of the log that a replica must have replayed, such as 16/B374D848."`
	DC     string   `json:"dc,omitempty" doc:"The data centre of the asker."`
}

// A ShardBatchItem is the answer for one key of a batch.
type ShardBatchItem struct {
	Key    string              `json:"key" doc:"The key."`
	Answer *engine.ShardAnswer `json:"answer,omitempty" doc:"Where it lives."`
	Code   string              `json:"code,omitempty" doc:"Why there is no answer, for programs."`
	Detail string              `json:"detail,omitempty" doc:"The same for people."`
}

// A ShardChangeRequest changes what was decided of a shard.
type ShardChangeRequest struct {
	Closed   *string `json:"closed,omitempty" maxLength:"512" doc:"Why registration is closed; empty text opens it."`
	Draining *string `json:"draining,omitempty" maxLength:"512" doc:"Why all keys are to leave; empty text lets them stay."`
	Reason   string  `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// The bounds of batches and of waiting.
const (
	maxShardKeys   = 1000
	maxShardKey    = 1000 // bytes
	shardWatchTime = 5 * time.Second
)

// shardRefusals are the codes that any call about a shard map may give.
func shardRefusals(more ...string) []string {
	return append(more, codeUnknownShardMap, codeInvalidParameter, codeStoreUnavailable)
}

func (s *server) shardOperations() []operation {
	inMap := inPath("map", "The shard map's id.")
	modes := &huma.Schema{Type: huma.TypeString, Enum: []any{engine.ShardMaster, engine.ShardReplica, engine.ShardAny}, Default: engine.ShardMaster}
	example := engine.ShardAnswer{
		Map: "mail", Key: "42/inbox", Placement: "42", Shard: "s1", Class: "hot", Epoch: 3,
		Hosts: []engine.ShardHostBrief{{Address: "db1.example.com:5432", DC: "a", Role: "master"}},
		DSN:   "postgres://app@db1.example.com:5432/mail?target_session_attrs=read-write",
	}
	return []operation{
		{
			method: http.MethodGet, path: "/v1/shard-maps", id: "list-shard-maps", tag: "shards",
			summary: "List the shard maps", replies: []reply{{status: 200, about: "The maps.", body: Page[engine.ShardMapView]{}}},
			refusals: []string{codeStoreUnavailable}, serve: s.listShardMaps,
		},
		{
			method: http.MethodGet, path: "/v1/shard-maps/{map}/resolve", id: "resolve-shard", tag: "shards",
			summary: "Tell where a key lives",
			about: "The answer names the shard, its hosts in the order in which to try them, and what `procaas.guard` takes: the placement and its epoch. " +
				"Call the guard first in each transaction that writes; when it fails with PC001 or PC002, ask again with `after-epoch`. " +
				"A key without a placement is registered when the map says so.",
			params: []*huma.Param{
				inMap, inQuery("key", "The key: its parts joined by slashes, with % / # [ within a part as %25 %2F %23 %5B, before the encoding of the query.", nil),
				inQuery("mode", "What the hosts are for: master to write, replica to read, any to read where it is nearest.", modes),
				inQuery("max-lag", "How far a replica may be behind, such as 2s; any when it is left out.", durationSchema("How far a replica may be behind.")),
				inQuery("min-lsn", "The position of the log that a replica must have replayed, such as 16/B374D848: that of the asker's last write.", nil),
				inQuery("dc", "The data centre of the asker: its hosts are preferred while enough of them are fit.", nil),
				inQuery("after-epoch", "Wait, for two seconds at most, until the placement has a later epoch.", &huma.Schema{Type: huma.TypeInteger}),
				inQuery("register", "false: do not register a key that has no placement.", &huma.Schema{Type: huma.TypeBoolean, Default: true}),
			},
			replies:  []reply{{status: 200, about: "Where the key lives.", body: engine.ShardAnswer{}, example: example}},
			refusals: shardRefusals(codeInvalidShardKey, codeKeyNotPlaced, codeNoFitHost, codeShardBusy), serve: s.resolveShard,
		},
		{
			method: http.MethodPost, path: "/v1/shard-maps/{map}/resolve", id: "resolve-shards", tag: "shards",
			summary: "Tell where many keys live", params: []*huma.Param{inMap},
			body:     jsonBody(s.schema(ShardBatch{}), ShardBatch{Keys: []string{"42", "43"}, Mode: engine.ShardReplica, DC: "a"}),
			replies:  []reply{{status: 200, about: "An answer, or why there is none, for each key in its order.", body: Page[ShardBatchItem]{}}},
			refusals: shardRefusals(), serve: s.resolveShards,
		},
		{
			method: http.MethodGet, path: "/v1/shard-maps/{map}/watch", id: "watch-shard-map", tag: "shards",
			summary: "Wait for placements to change",
			about: "Gives the placements that have changed since a position, as soon as there are any, or none after five seconds. " +
				"With `reset` everything that the asker keeps may be old; so it is without a position, and with one of another node.\n\n" +
				"With `Accept: text/event-stream` the same comes as events named `changes` for as long as the stream lasts, each with its " +
				"position as its id: the first one at once, the others as placements change, and a comment every 15 seconds in between. " +
				"The stream ends when the node does, or after an hour; whoever comes back with `Last-Event-ID` goes on from there.",
			params: []*huma.Param{
				inMap, inQuery("after", "The position: next of the call before.", nil),
				inHeader("Last-Event-ID", "Of a stream: in place of after."),
			},
			replies:  []reply{{status: 200, about: "The changes.", body: engine.ShardChanges{}, contentType: mediaStream}},
			refusals: shardRefusals(), serve: s.watchShardMap,
		},
		{
			method: http.MethodGet, path: "/v1/shard-maps/{map}/shards", id: "list-shards", tag: "shards",
			summary: "List the shards of a map with their hosts", params: []*huma.Param{inMap},
			replies:  []reply{{status: 200, about: "The shards.", body: Page[engine.ShardView]{}}},
			refusals: shardRefusals(), serve: s.listShards,
		},
		{
			method: http.MethodPut, path: "/admin/v1/shard-maps/{map}/shards/{shard}", id: "set-shard", tag: "shards",
			summary: "Close a shard for new keys, open it, drain it", params: []*huma.Param{inMap, inPath("shard", "The shard's id.")},
			body:     jsonBody(s.schema(ShardChangeRequest{}), map[string]any{"closed": "disk at 78 %"}),
			replies:  []reply{{status: 200, about: "The shard.", body: engine.ShardView{}}},
			refusals: shardRefusals(codeUnknownShard), serve: s.setShard,
		},
		{
			method: http.MethodPost, path: "/admin/v1/shard-maps/{map}/shards/{shard}/enroll", id: "enroll-shard", tag: "shards",
			summary:  "Install the fence and the publications on a shard",
			about:    "May be repeated. A shard that does not fulfil the conditions is left as it is; the reasons are in the reply.",
			params:   []*huma.Param{inMap, inPath("shard", "The shard's id.")},
			replies:  []reply{{status: 200, about: "What was found and done.", body: engine.ShardEnrollment{}}},
			refusals: shardRefusals(codeUnknownShard, codeNoFitHost), serve: s.enrollShard,
		},
		s.regroupOperation("split", "split-placement", "Give a part of a placement one of its own",
			"In a map by range, the stretch of keys that `at` lies in is divided there; in others the key `at` gets a placement of its own. Both stay on their "+
				"shard; a transfer can move them apart. Writers are held back for some milliseconds.", engine.ShardMaps.SplitShard),
		s.regroupOperation("merge", "merge-placement", "Make a part that was split off part of the rest again",
			"The placement that the key `at` has of its own ends, and its rows belong to the placement that it was split off. In a map by range the stretch of keys "+
				"that begins at `at` ends, and its keys belong to the stretch before it. Both must be on the same shard, and no transfer of either may be under "+
				"way or observed. Writers are held back for some milliseconds.", engine.ShardMaps.MergeShard),
	}
}

// A ShardRegroupRequest says where to divide a placement, or which one ends.
type ShardRegroupRequest struct {
	At     string `json:"at" minLength:"1" maxLength:"1000" doc:"A key, or the bound of a stretch of keys."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Change nothing, and tell what would be."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// A regroup is a split or a merge.
type regroup func(maps engine.ShardMaps, ctx context.Context, shardMap, at string, dry bool, by engine.Actor) (engine.ShardRegroup, error)

func (s *server) regroupOperation(verb, id, summary, about string, do regroup) operation {
	return operation{
		method: http.MethodPost, path: "/admin/v1/shard-maps/{map}/" + verb, id: id, tag: "shards", summary: summary, about: about,
		params: []*huma.Param{inPath("map", "The shard map's id.")},
		body:   jsonBody(s.schema(ShardRegroupRequest{}), ShardRegroupRequest{At: "5000"}),
		replies: []reply{{status: 200, about: "What has changed, or would.", body: engine.ShardRegroup{},
			example: engine.ShardRegroup{Map: "mail", Wide: "[", Narrow: "[5000", Shard: "s1", Changed: true}}},
		refusals: shardRefusals(codeInvalidShardKey, codeKeyNotPlaced, codeShardBusy, codeNoFitHost),
		serve:    func(w http.ResponseWriter, r *http.Request) error { return s.regroup(w, r, do) },
	}
}

// regroup does a split or a merge, or tells what it would do.
func (s *server) regroup(w http.ResponseWriter, r *http.Request, do regroup) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	at, dry, reason := f.required("at"), f.boolean("dry_run"), f.label("reason", maxReason)
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	done, err := do(shards, r.Context(), id, at, dry, actor(r, reason))
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, done)
}

// shardMaps gives the maps of the node, and the name of the one that a request is about.
func (s *server) shardMaps(r *http.Request) (engine.ShardMaps, string, error) {
	id, err := pathValue(r, "map")
	if err != nil {
		return nil, "", err
	}
	if s.shards == nil {
		return nil, "", refuse(codeUnknownShardMap, "this server keeps no shard maps: they need a store in PostgreSQL, and shard-maps: in the pipelines")
	}
	return s.shards, id, nil
}

// shardProblem says over HTTP what an error about shards means.
func shardProblem(err error) error {
	for known, code := range map[error]string{
		engine.ErrShardMap: codeUnknownShardMap, engine.ErrShard: codeUnknownShard, engine.ErrShardKey: codeInvalidShardKey,
		engine.ErrUnplaced: codeKeyNotPlaced, engine.ErrShardBusy: codeShardBusy,
	} {
		if errors.Is(err, known) {
			return refuse(code, "%s", err)
		}
	}
	if errors.Is(err, engine.ErrNoHost) {
		return refuse(codeNoFitHost, "%s", err).with("Retry-After", "1")
	}
	return err
}

func (s *server) listShardMaps(w http.ResponseWriter, r *http.Request) error {
	if s.shards == nil {
		return writeJSON(w, http.StatusOK, pageOf([]engine.ShardMapView{}, ""))
	}
	views, err := s.shards.MapViews(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(views, ""))
}

// resolveShard says where one key lives. It may wait for a later epoch, or register the key.
func (s *server) resolveShard(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	s.warm.Store(true)
	f := queryFields(r.URL.Query())
	q := f.shardQuestion()
	q.Key = f.required("key")
	if f.values["after-epoch"] != nil {
		q.AfterEpoch, err = strconv.ParseInt(f.str("after-epoch"), 10, 64)
		if err != nil || q.AfterEpoch < 0 {
			f.fault("after-epoch", "want a whole number, have %s", shown(f.values["after-epoch"]))
		}
	}
	q.Known = f.get("register") != nil && !f.boolean("register")
	if err := badParameter(f.faults); err != nil {
		return err
	}
	answer, err := shards.Resolve(r.Context(), id, q)
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// shardQuestion reads what a question asks for, but the key.
func (f *fields) shardQuestion() engine.ShardQuestion {
	q := engine.ShardQuestion{Mode: f.str("mode"), MaxLag: f.duration("max-lag"), DC: f.label("dc", maxName)}
	switch q.Mode {
	case "":
		q.Mode = engine.ShardMaster
	case engine.ShardMaster, engine.ShardReplica, engine.ShardAny:
	default:
		f.fault("mode", "want master, replica or any, have %s", shown(q.Mode))
	}
	if text := f.str("min-lsn"); text != "" {
		high, low, _ := strings.Cut(text, "/")
		a, err := strconv.ParseUint(high, 16, 32)
		b, err2 := strconv.ParseUint(low, 16, 32)
		if q.MinLSN = a<<32 | b; err != nil || err2 != nil {
			f.fault("min-lsn", "want a position such as 16/B374D848, have %s", shown(text))
		}
	}
	return q
}

// resolveShards answers for each key by itself: one that cannot be placed does not spoil the others.
func (s *server) resolveShards(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	keys := f.labels("keys", maxShardKey)
	if len(keys) == 0 || len(keys) > maxShardKeys {
		f.fault("keys", "want 1 to %d keys, have %d", maxShardKeys, len(keys))
	}
	q := f.shardQuestion()
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	items := make([]ShardBatchItem, len(keys))
	for i, key := range keys {
		q.Key, items[i].Key = key, key
		answer, err := shards.Resolve(r.Context(), id, q)
		if errors.Is(err, engine.ErrShardMap) {
			return shardProblem(err)
		}
		if err != nil {
			p := problemOf(shardProblem(err))
			items[i].Code, items[i].Detail = p.Code, p.Detail
			continue
		}
		items[i].Answer = &answer
	}
	return writeJSON(w, http.StatusOK, pageOf(items, ""))
}

// watchShardMap waits for changes once, or sends them as a stream.
func (s *server) watchShardMap(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	f := queryFields(r.URL.Query())
	after := f.label("after", maxCursor)
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	if len(after) > maxCursor {
		f.faults = append(f.faults, Fault{Location: "header/last-event-id", Message: fmt.Sprintf("want the position of an event, %d bytes at most", maxCursor)})
	}
	if err := badParameter(f.faults); err != nil {
		return err
	}
	if wantsStream(r) {
		return s.streamShardMap(w, r, shards, id, after)
	}
	ctx, cancel := s.untilEnd(r.Context(), shardWatchTime)
	defer cancel()
	changes, err := shards.Watch(ctx, id, after)
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, changes)
}

// streamShardMap sends the changes of a map. The first event says at once from where the
// caller goes on, and that it has to forget everything when its position is not known here.
func (s *server) streamShardMap(w http.ResponseWriter, r *http.Request, shards engine.ShardMaps, id, after string) error {
	atOnce, cancel := context.WithCancel(r.Context())
	cancel()
	first, err := shards.Watch(atOnce, id, after)
	if err != nil {
		return shardProblem(err)
	}
	begun := false
	return s.stream(w, r, needs["watch-shard-map"], func(ctx context.Context) (event, error) {
		changes := first
		if begun {
			var err error
			if changes, err = shards.Watch(ctx, id, after); err != nil {
				return event{}, err
			}
			if !changes.Reset && len(changes.Items) == 0 {
				return event{}, nil
			}
		}
		begun, after = true, changes.Next
		data, err := json.Marshal(changes)
		return event{changes.Next, "changes", data}, err
	})
}

func (s *server) listShards(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	views, err := shards.Shards(r.Context(), id)
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, pageOf(views, ""))
}

func (s *server) setShard(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	shard, err := pathValue(r, "shard")
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	var c engine.ShardChange
	for _, of := range []struct { // in this order, which messages show
		name string
		into **string
	}{{"closed", &c.Closed}, {"draining", &c.Draining}} {
		if text := f.label(of.name, maxReason); f.values[of.name] != nil {
			*of.into = &text // empty text, too: it takes the decision back
		}
	}
	reason := f.label("reason", maxReason)
	f.refuseUnknown()
	if c.Closed == nil && c.Draining == nil {
		f.fault("closed", "want closed or draining, each with the reason, or empty text to take it back")
	}
	if err := faulty(f.faults); err != nil {
		return err
	}
	view, err := shards.SetShard(r.Context(), id, shard, c, actor(r, reason))
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, view)
}

func (s *server) enrollShard(w http.ResponseWriter, r *http.Request) error {
	shards, id, err := s.shardMaps(r)
	if err != nil {
		return err
	}
	shard, err := pathValue(r, "shard")
	if err != nil {
		return err
	}
	done, err := shards.EnrollShard(r.Context(), id, shard, actor(r, ""))
	if err != nil {
		return shardProblem(err)
	}
	return writeJSON(w, http.StatusOK, done)
}

// shardPath is the address of a part of a shard map.
func shardPath(shardMap, rest string) string {
	return "/v1/shard-maps/" + url.PathEscape(shardMap) + rest
}

// ShardMaps lists the shard maps.
func (c *Client) ShardMaps(ctx context.Context) ([]engine.ShardMapView, error) {
	var page Page[engine.ShardMapView]
	err := c.call(ctx, http.MethodGet, "/v1/shard-maps", nil, nil, &page)
	return page.Items, err
}

// ResolveShard tells where a key lives.
func (c *Client) ResolveShard(ctx context.Context, shardMap string, q engine.ShardQuestion) (engine.ShardAnswer, error) {
	v := url.Values{"key": {q.Key}}
	set := func(name, value string, wanted bool) {
		if wanted {
			v.Set(name, value)
		}
	}
	set("mode", q.Mode, q.Mode != "")
	set("max-lag", q.MaxLag.String(), q.MaxLag > 0)
	set("min-lsn", strconv.FormatUint(q.MinLSN>>32, 16)+"/"+strconv.FormatUint(q.MinLSN&0xffffffff, 16), q.MinLSN > 0)
	set("dc", q.DC, q.DC != "")
	set("after-epoch", strconv.FormatInt(q.AfterEpoch, 10), q.AfterEpoch > 0)
	set("register", "false", q.Known)
	var answer engine.ShardAnswer
	err := c.call(ctx, http.MethodGet, shardPath(shardMap, "/resolve?")+v.Encode(), nil, nil, &answer)
	return answer, err
}

// WatchShardMap waits for placements to change.
func (c *Client) WatchShardMap(ctx context.Context, shardMap, after string) (engine.ShardChanges, error) {
	var changes engine.ShardChanges
	err := c.call(ctx, http.MethodGet, shardPath(shardMap, "/watch?"+url.Values{"after": {after}}.Encode()), nil, nil, &changes)
	return changes, err
}

// Shards lists the shards of a map.
func (c *Client) Shards(ctx context.Context, shardMap string) ([]engine.ShardView, error) {
	var page Page[engine.ShardView]
	err := c.call(ctx, http.MethodGet, shardPath(shardMap, "/shards"), nil, nil, &page)
	return page.Items, err
}

// SetShard changes what was decided of a shard.
func (c *Client) SetShard(ctx context.Context, shardMap, shard string, change ShardChangeRequest) (engine.ShardView, error) {
	var view engine.ShardView
	err := c.call(ctx, http.MethodPut, "/admin"+shardPath(shardMap, "/shards/"+url.PathEscape(shard)), change, nil, &view)
	return view, err
}

// RegroupShard splits or merges placements of a map.
func (c *Client) RegroupShard(ctx context.Context, shardMap, verb string, ask ShardRegroupRequest) (engine.ShardRegroup, error) {
	var done engine.ShardRegroup
	err := c.call(ctx, http.MethodPost, "/admin"+shardPath(shardMap, "/"+verb), ask, nil, &done)
	return done, err
}

// EnrollShard prepares a shard.
func (c *Client) EnrollShard(ctx context.Context, shardMap, shard string) (engine.ShardEnrollment, error) {
	var done engine.ShardEnrollment
	err := c.call(ctx, http.MethodPost, "/admin"+shardPath(shardMap, "/shards/"+url.PathEscape(shard)+"/enroll"), nil, nil, &done)
	return done, err
}
