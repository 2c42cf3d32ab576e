package wire

import (
	"time"

	"procaas/engine/credentials"
)

// A Reload says how to read the pipelines again.
type Reload struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"true cancels accepted events that wait for removed pipelines or transitions. Otherwise the server refuses to remove these."`

	Canary float64  `json:"canary,omitempty" minimum:"0" maximum:"99" doc:"The percentage of keys whose new runs use the new version at first. 25, 50 and 100 % follow. The default is all keys at once."`
	Step   Duration `json:"step,omitempty" doc:"Of a canary: how long each share lasts at least. The default is 10m."`
	Runs   int      `json:"runs,omitempty" minimum:"0" maximum:"1000000" doc:"Of a canary: how many runs of the new version the server compares at each share at least. The default is 100."`
	Hold   bool     `json:"hold,omitempty" doc:"Of a canary: true stays at the share until somebody promotes it."`
	Ignore []string `json:"ignore,omitempty" maxItems:"4" enum:"failures,errors,latency,calls" doc:"Of a canary: what the server does not compare."`

	Shadow float64 `json:"shadow,omitempty" minimum:"0" maximum:"100" doc:"The percentage of ended runs that nodes replay with the new version. No run uses the version. Not with canary."`
}

// A Deployment is a set of pipelines from outside the nodes, and how to make it current.
type Deployment struct {
	Reload
	Files  []DeployedFile `json:"files" minItems:"1" maxItems:"10000" doc:"All files of the set: pipelines, and the files that they name."`
	Source string         `json:"source,omitempty" maxLength:"200" doc:"Where the set comes from, such as a commit, for the audit."`
	DryRun bool           `json:"dry_run,omitempty" doc:"true changes nothing, and reports what would change or why the server would refuse it."`
}

// A DeployedFile is one file of a set.
type DeployedFile struct {
	Name string `json:"name" minLength:"1" maxLength:"1000" doc:"The path below the folder of the set, with forward slashes."`
	Text string `json:"text" bytes:"any" doc:"The content, in UTF-8."`
}

// A Promotion increases the share of keys of the version on trial.
type Promotion struct {
	Percent float64 `json:"percent,omitempty" minimum:"0" maximum:"100" doc:"The percentage of keys. The default is 100: the version becomes current."`
	Hold    bool    `json:"hold,omitempty" doc:"true stays at the share until somebody promotes it."`
	Reason  string  `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit."`
}

// A Rollback says which version to make current again.
type Rollback struct {
	To     string `json:"to,omitempty" doc:"The version, or at least its first 4 digits. The default ends the canary or the shadow if there is one, and otherwise is the version that the current one replaced."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"true cancels accepted events that wait for pipelines that the version does not have."`
}

// A NewToken is the body of the call that makes a token.
type NewToken struct {
	Name    string    `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" by:"engine" doc:"The name of the bearer in the audit."`
	Role    string    `json:"role" enum:"viewer,submitter,worker,operator,deployer,admin" by:"engine" doc:"viewer reads. submitter submits events and tasks. worker takes and finishes tasks. operator does all that, and controls runs and paths. deployer changes pipelines, and reads versions and nodes. admin does everything."`
	Paths   []string  `json:"paths,omitempty" maxItems:"100" by:"engine" doc:"For a viewer, operator or submitter: the paths that it is bound to, such as pipeline or pipeline/stage. For a worker: types of tasks."`
	Owners  []string  `json:"owners,omitempty" maxItems:"100" by:"engine" doc:"For a deployer: the owners whose files it may change, as in pipelines. The default is all files."`
	Sources []string  `json:"sources,omitempty" maxItems:"100" by:"engine" doc:"For a submitter or operator: the sources of the events that it may submit, such as orders, each with what is below it. No other token may use them. The default is the sources to which no token is bound."`
	Quota   string    `json:"quota,omitempty" by:"engine" doc:"For a submitter: how many events and tasks it may submit, such as 100/s. Nodes have equal parts of it."`
	Expires time.Time `json:"expires,omitzero" doc:"When it expires. The default is in 90 days."`
	Forever bool      `json:"forever,omitempty" doc:"true if it never expires."`
	Reason  string    `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people and the audit."`

	Certificate string `json:"certificate,omitempty" by:"engine" doc:"A name in the client certificates of the bearer, with its kind: DNS:shop.internal, URI:spiffe://example/shop, EMAIL:ci@example.com or CN:shop. The token has no secret then."`
}

// A MadeToken is a new token. Its secret is shown only once.
type MadeToken struct {
	credentials.TokenView
	Secret string `json:"token" doc:"The token to send as Authorization: Bearer TOKEN. The server shows it only here. Empty for a token for a certificate."`
}

// A Health reports that a process is alive or ready.
type Health struct {
	Status  string `json:"status" enum:"ok,ready" doc:"ok: the process is alive. ready: it accepts and runs events."`
	Version string `json:"version" doc:"The version of the program."`

	Degraded string `json:"degraded,omitempty" doc:"Parts that do not work although the node does, for people."`
}
