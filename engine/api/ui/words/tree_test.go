package words

import (
	"encoding/json"
	"html"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// What a tree shows is JSON of its value: the page copies it. A value too large to fold is plain text.
func TestTreeIsJSON(t *testing.T) {
	t.Parallel()
	tags := regexp.MustCompile(`<[^>]*>`)
	for _, v := range []any{
		nil, "", 1.5, true, map[string]any{}, []any{}, []any{[]any{nil, map[string]any{"a": []any{1.0, "<b>"}}}},
		map[string]any{`"<&>`: map[string]any{"deep": map[string]any{"deeper": []any{"x", "y"}}}, "last": "</div>\n"},
	} {
		have := string(Tree(v))
		var back any
		if err := json.Unmarshal([]byte(html.UnescapeString(tags.ReplaceAllString(have, ""))), &back); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("want the text of the tree to be %#v, have %#v, %v:\n%s", v, back, err, have)
		}
	}
	if have := string(Tree(make([]int, maxTree+1))); !strings.HasPrefix(have, "<pre") {
		t.Errorf("want plain text for a long list, have %.100s", have)
	}
}
