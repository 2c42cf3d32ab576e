package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestConfigFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		args []string
		want string // the flags that were set, or the error
	}{
		"one value":          {"max-in-flight: 2000\n", nil, "max-in-flight=2000"},
		"comments":           {"# nothing\n", nil, ""},
		"empty":              {"", nil, ""},
		"the line wins":      {"max-in-flight: 2000\n", []string{"--max-in-flight", "5"}, "max-in-flight=5"},
		"a list":             {"pipelines: [a, 'b,c']\n", nil, `pipelines=[a,"b,c"]`},
		"a list of one":      {"pipelines: a\n", nil, "pipelines=[a]"},
		"repeated":           {"allow-target:\n  - a.example:80\n  - b,c\n", nil, `allow-target=[a.example:80,"b,c"]`},
		"pairs":              {"service: {a: 'http://x/?q=1,2', b: http://y}\n", nil, "service: a=http://x/?q=1,2 b=http://y"},
		"an alias":           {"name: &n here\nlisten: *n\n", nil, "listen=here name=here"},
		"a switch":           {"migrate: false\n", nil, "migrate=false"},
		"not a switch":       {"migrate: no\n", nil, `c.yaml:1:10: migrate: "no": want true or false`},
		"unknown":            {"a: 1\nmax-inflight: 1\n", nil, "c.yaml:1:1: unknown setting \"a\"; want the name of a flag without --\nc.yaml:2:1: unknown setting \"max-inflight\"; did you mean max-in-flight?"},
		"itself":             {"config: other\n", nil, `c.yaml:1:1: unknown setting "config"; want the name of a flag without --`},
		"twice":              {"name: a\nname: b\n", nil, "c.yaml:2:1: name is set a second time, after line 1"},
		"nothing":            {"name:\n", nil, "c.yaml:1:6: name: want one value"},
		"a list for one":     {"name: [a]\n", nil, "c.yaml:1:7: name: want one value"},
		"text for pairs":     {"service: a\n", nil, "c.yaml:1:10: service: want a mapping of names and values"},
		"pairs for a list":   {"pipelines: {a: b}\n", nil, "c.yaml:1:12: pipelines: want a value or a list"},
		"a list of lists":    {"pipelines: [[a]]\n", nil, "c.yaml:1:12: pipelines: line 1: want text"},
		"no mapping":         {"- a\n", nil, "c.yaml:1: want a mapping of flags and values, such as max-in-flight: 2000"},
		"no YAML":            {"a: b: c\n", nil, "--config c.yaml: mapping values are not allowed in this context"},
		"a number is a text": {"name: 0755\n", nil, "name=0755"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := &cobra.Command{}
			flags := cmd.Flags()
			ConfigFlag(cmd)
			flags.Int("max-in-flight", 1, "")
			flags.String("name", "", "")
			flags.String("listen", "", "")
			flags.Bool("migrate", true, "")
			flags.StringSlice("pipelines", []string{"."}, "")
			flags.StringArray("allow-target", nil, "")
			services := flags.StringToString("service", nil, "")
			if err := flags.Parse(append([]string{"--config", file}, c.args...)); err != nil {
				t.Fatal(err)
			}
			err := flagsFromFile(flags)
			var have []string
			if err != nil {
				have = []string{strings.ReplaceAll(err.Error(), file, "c.yaml")}
			} else {
				for _, name := range []string{"max-in-flight", "pipelines", "allow-target", "listen", "migrate", "name"} {
					if f := flags.Lookup(name); f.Changed {
						have = append(have, name+"="+f.Value.String())
					}
				}
				if len(*services) > 0 {
					have = append(have, "service: a="+(*services)["a"]+" b="+(*services)["b"])
				}
			}
			if got := strings.Join(have, " "); got != c.want {
				t.Errorf("have %s\nwant %s", got, c.want)
			}
		})
	}
	flags := (&cobra.Command{}).Flags()
	flags.String(configFlag, filepath.Join(t.TempDir(), "none.yaml"), "")
	if err := flagsFromFile(flags); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}
