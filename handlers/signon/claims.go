package signon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"procaas/dsl/diag"
	"procaas/engine/credentials"
)

// Claims are what an issuer says about somebody.
type Claims map[string]any

// ParseClaims reads claims in the form of JSON. Numbers keep their digits.
func ParseClaims(data []byte) (Claims, error) {
	var c Claims
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("want a mapping of claims, have null")
	}
	return c, nil
}

// get returns a claim, or nil. Dots lead into others, unless a claim has that very name, as the names that are addresses do.
func (c Claims) get(name string) any {
	if v, ok := c[name]; ok {
		return v
	}
	var at any = map[string]any(c)
	for part := range strings.SplitSeq(name, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[part]
	}
	return at
}

// texts lists the values of a claim, which may be one or a list.
func (c Claims) texts(name string) []string {
	list, ok := c.get(name).([]any)
	if !ok {
		list = []any{c.get(name)}
	}
	var all []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case json.Number, bool:
			all = append(all, fmt.Sprint(v))
		}
	}
	return all
}

// unverified reports whether the claim email is there, but the issuer does not say that it has verified it. Such an address is what
// its owner likes.
func (c Claims) unverified() bool {
	said, ok := c["email_verified"].(bool)
	return c["email"] != nil && !(ok && said)
}

// vouched returns what the issuer vouches for: the claims without an unverified address.
func (c Claims) vouched() Claims {
	if !c.unverified() {
		return c
	}
	less := Claims{}
	for name, v := range c {
		if name != "email" {
			less[name] = v
		}
	}
	return less
}

// longestName bounds what the audit calls somebody.
const longestName = 128

// nameIn returns what the audit calls somebody, by the claim that is to name them, or sub. Only addresses stand alone. Other names
// have the claim before them, so that nobody is called as a token or as the engine is. The id of the issuer stands before all of it.
func (i *Issuer) nameIn(c Claims) (string, error) {
	before := ""
	if i.ID != "" {
		before = i.ID + ":"
	}
	for _, claim := range []string{i.Name, "sub"} {
		name, ok := c.vouched().get(claim).(string)
		if !ok || name == "" {
			continue
		}
		if len(name) > longestName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }) {
			return "", &ClaimError{claim, fmt.Sprintf("want a name of at most %d bytes without spaces", longestName)}
		}
		if claim != "sub" && strings.Contains(name, "@") {
			return before + name, nil
		}
		return before + claim + ":" + name, nil
	}
	return "", &ClaimError{"sub", "it is missing"}
}

// A ClaimError says which claim of a token is missing or wrong.
type ClaimError struct{ Claim, Problem string }

// Error implements error.
func (e *ClaimError) Error() string { return "claim " + e.Claim + ": " + e.Problem }

// Unwrap makes it the error of a token that is not valid.
func (e *ClaimError) Unwrap() error { return credentials.ErrUnknownToken }

// mostTold bounds how many rules a refusal explains.
const mostTold = 5

// A NoRuleError says why no rule fits somebody.
type NoRuleError struct {
	File   string
	Issuer string   // its id; may be empty
	Why    []string // for each rule
}

// Error implements error.
func (e *NoRuleError) Error() string {
	why := e.Why
	more := ""
	if len(why) > mostTold {
		more = fmt.Sprintf("; and %d more", len(why)-mostTold)
		why = why[:mostTold]
	}
	whose := e.File
	if e.Issuer != "" {
		whose = "issuer " + e.Issuer + " in " + e.File
	}
	return fmt.Sprintf("no rule of %s fits: %s%s", whose, strings.Join(why, "; "), more)
}

// Grant returns what somebody with these claims may do, by the first rule of their issuer that fits.
func (f *File) Grant(c Claims) (credentials.Grant, error) {
	by, err := f.issuerOf(c)
	if err != nil {
		return credentials.Grant{}, err
	}
	no := &NoRuleError{Issuer: by.ID}
	for _, rule := range by.Rules {
		why := rule.misfit(c)
		if why == "" {
			g := rule.grant()
			name, err := by.nameIn(c)
			g.Name = name
			return g, err
		}
		no.File = rule.Span.File
		no.Why = append(no.Why, fmt.Sprintf("rule %d %s", rule.number, why))
	}
	return credentials.Grant{}, no
}

// misfit returns why the rule does not fit claims, or "".
func (rule *Rule) misfit(c Claims) string {
	for _, name := range diag.SortedKeys(rule.When) {
		want, have := rule.When[name], c.vouched().texts(name)
		if slices.ContainsFunc(have, func(v string) bool { return slices.Contains(want, v) }) {
			continue
		}
		wants := fmt.Sprintf("wants the claim %s with %s", name, strings.Join(want, " or "))
		switch {
		case name == "email" && c.unverified():
			return wants + ", and the issuer does not say email_verified: true"
		case len(have) == 0:
			return wants + ", which the token lacks"
		}
		return wants + ", and the token has " + shortened(strings.Join(have, ", "))
	}
	return ""
}

// shortened bounds what a message repeats of a token.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// skew is how much clocks of an issuer and of a node may differ.
const skew = time.Minute

// checkTimes checks when a token is valid.
func (c Claims) checkTimes(now time.Time) (until time.Time, err error) {
	until, ok := c.timeOf("exp")
	switch {
	case !ok:
		return until, &ClaimError{"exp", "it is missing, so the token would never end"}
	case !now.Before(until.Add(skew)):
		return until, &ClaimError{"exp", "the token expired at " + until.UTC().Format(time.RFC3339)}
	}
	for _, name := range []string{"nbf", "iat"} {
		if from, ok := c.timeOf(name); ok && now.Add(skew).Before(from) {
			return until, &ClaimError{name, fmt.Sprintf("the token is only good from %s on, and it is %s here", from.UTC().Format(time.RFC3339),
				now.UTC().Format(time.RFC3339))}
		}
	}
	return until, nil
}

func (c Claims) timeOf(name string) (time.Time, bool) {
	n, ok := c[name].(json.Number)
	if !ok {
		return time.Time{}, false
	}
	seconds, err := n.Float64()
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

// checkParties checks who has issued a token, and for whom.
func (c Claims) checkParties(issuer string, audiences []string) error {
	if have, _ := c["iss"].(string); have != issuer {
		return &ClaimError{"iss", fmt.Sprintf("want %s, have %q", issuer, shortened(have))}
	}
	have := c.texts("aud")
	if len(have) == 0 {
		return &ClaimError{"aud", fmt.Sprintf("it is missing; want %s", strings.Join(audiences, " or "))}
	}
	if !slices.ContainsFunc(have, func(a string) bool { return slices.Contains(audiences, a) }) {
		return &ClaimError{"aud", fmt.Sprintf("want %s, have %s", strings.Join(audiences, " or "), shortened(strings.Join(have, ", ")))}
	}
	if sub, _ := c["sub"].(string); sub == "" {
		return &ClaimError{"sub", "it is missing"}
	}
	return nil
}
