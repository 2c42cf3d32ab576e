package dsl_test

import (
	"testing"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// The same handler in both versions of the language, as the source of the
// language has it.
const twoVersions = `
pipelines:
- id: example
  shared-state: {order: null}
  stages:
  - id: fetch
    handlers:
    - id: first
      enabled#and:
        - value#xget: /event/payload/is-authorized
        - value#contains:
            haystack: ['econom', 'business']
            needle#xget: /order/info/tariff
        - value#not:
            value#xget: /configs/SOME_IMPORTANT_SWITCH/enabled
      request:
        url: http://foo.example.com/v1/foo/bar
        body:
          user-id#xget: /order/user_id
          tariff#xget: /order/info/tariff
    - id: second
      enabled: !$ |
        event.payload['is-authorized'] and
        order.info['tariff'] in ['econom', 'business'] and
        not configs['SOME_IMPORTANT_SWITCH'].enabled
      request:
        url: http://foo.example.com/v1/foo/bar
        body:
          user-id: !$ order.user_id
          tariff: !$ order.info['tariff']
configs: {SOME_IMPORTANT_SWITCH: {enabled: false}}
`

func TestBothVersionsOfTheLanguageMeanTheSame(t *testing.T) {
	t.Parallel()
	bundle, found := dsl.Load([]diag.File{{Name: "a.yaml", Data: []byte(twoVersions)}}, dsl.Options{Language: language(), Types: testTypes()})
	if diag.HasErrors(found) {
		t.Fatal(found)
	}
	first, second := bundle.Handler("example/fetch/first"), bundle.Handler("example/fetch/second")
	for _, tariff := range []string{"econom", "vip"} {
		for _, authorized := range []bool{true, false} {
			for _, off := range []bool{true, false} {
				env := datum.Env{
					"event":        map[string]any{"payload": map[string]any{"is-authorized": authorized}},
					"shared-state": map[string]any{"order": map[string]any{"user_id": 7, "info": map[string]any{"tariff": tariff}}},
					"configs":      map[string]any{"SOME_IMPORTANT_SWITCH": map[string]any{"enabled": off}},
				}
				have, err := first.Enabled.Eval(env)
				want, err2 := second.Enabled.Eval(env)
				if err != nil || err2 != nil || have != want || want != (authorized && tariff == "econom" && !off) {
					t.Errorf("%s, %v, %v: version 1 gives %v, %v, version 2 %v, %v", tariff, authorized, off, have, err, want, err2)
				}
			}
		}
	}
	reads := func(h *tree.Handler) (all []string) {
		for _, r := range append(h.Enabled.Reads(), h.Body.Reads()...) {
			all = append(all, r.Path.String())
		}
		return all
	}
	if have, want := reads(first), reads(second); len(have) != len(want) || len(want) == 0 {
		t.Errorf("version 1 reads %v, version 2 %v", have, want)
	}
}
