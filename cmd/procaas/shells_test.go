package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
)

// shells are programs that complete each of $TYPED as a person does, and print the words of the line then. zsh needs a terminal for it.
var shells = map[string][]string{
	"bash": {"bash", "--noprofile", "--norc", "-c", `
. /usr/share/bash-completion/bash_completion && . <(procaas completion bash) && complete -p procaas >/dev/null || exit
while read -r COMP_LINE; do
	read -ra COMP_WORDS <<<"$COMP_LINE"
	COMP_POINT=${#COMP_LINE} COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
	__start_procaas procaas "${COMP_WORDS[-1]}"
	echo "<${COMP_WORDS[*]:0:COMP_CWORD} ${COMPREPLY[*]%% *}>"
done <<<"$TYPED"`},
	"fish": {"fish", "--no-config", "-c", `
procaas completion fish | source
for line in (string split \n $TYPED)
	set words (string split ' ' $line)
	echo "<$words[1..-2] "(complete -C $line | string split -f1 \t)">"
end`},
	"zsh": {"zsh", "-f", "-c", `
procaas completion zsh >$SHELL_DIR/_procaas || exit
zmodload zsh/zpty && zpty -b it "TERM=dumb zsh -f -i" || exit
zpty -w it 'procaas() { if [[ $1 == __complete ]]; then command procaas "$@"; else print -r -- "<procaas ${(j: :)@}>"; fi }'
zpty -w it 'fpath=($SHELL_DIR $fpath); autoload -U compinit; compinit -u -D; print "re""ady"'
zpty -r it said '*ready*'
for line in ${(f)TYPED}; do
	zpty -w -n it $line$'\t\n' && zpty -r it said '*<procaas *>*' && print -r -- $said
done
zpty -d it`},
}

// Bash, fish and zsh complete lines by what the program generates for them. These lines have no names of files or of a server, which a
// shell gets only if they are found at once.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	lines := []string{"procaas runs sh", "procaas release can", "procaas runs list --stat"}
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := patience.Context(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, shell[0], shell[1:]...)
			cmd.WaitDelay = time.Second // what the shell has started may have its output
			cmd.Env = append(os.Environ(), "TYPED="+strings.Join(lines, "\n"), "SHELL_DIR="+t.TempDir(), "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v (engine/enginetest/install.sh installs the shell)", err)
			}
			for _, want := range []string{"runs show", "release canary", "runs list --status"} {
				if !strings.Contains(string(out), "<procaas "+want+">") {
					t.Errorf("have %q, want %q in it", out, want)
				}
			}
		})
	}
}
