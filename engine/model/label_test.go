package model_test

import (
	"maps"
	"strings"
	"testing"

	"procaas/engine/model"
)

func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"city=berlin", "a=x=y,b=ü 1,team/x.y-z_1=2", ""} {
		labels, err := model.ParseLabels(text)
		if back, wrong := model.FormatLabels(labels); err != nil || wrong != nil || back != text {
			t.Errorf("%q: have %v, %q, %v, %v", text, labels, back, err, wrong)
		}
	}
	if labels, err := model.ParseLabels("b=2,a=1"); err != nil || !maps.Equal(labels, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("have %v, %v", labels, err)
	}
	long := strings.Repeat("x", 101)
	for text, want := range map[string]string{
		"city": `labels such as city=berlin,vip=yes, have "city"`, "city=": "label city: want a value of 1 to 100 printable bytes",
		"=x":      `label "": want a name`,
		"a=1,a=2": "each label once, have a twice", "a=" + long: "label a: want a value", long + "=1": "at most 40 letters",
		"a b=1":                               "want a name",
		"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1": "at most 8 labels, have 9", "a=x\ny": "printable", "a=\xff": "printable",
	} {
		if _, err := model.ParseLabels(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %s, have %v", text, want, err)
		}
	}
	for filter, ok := range map[string]bool{"": true, "city": true, "city=berlin,vip": true, "city=": false, "%": false, "a,,b": false} {
		if err := model.CheckLabelFilter(filter); (err == nil) != ok {
			t.Errorf("filter %q: want it allowed %t, have %v", filter, ok, err)
		}
	}
}
