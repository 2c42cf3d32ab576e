package rest

import "procaas/engine/credentials"

// A Need is what an operation requires of its caller. The zero Need is none: an operation that anybody may call says so.
type Need struct {
	Anybody    bool // without a token
	Role       credentials.Role
	Everywhere bool   // a grant with paths is not enough
	Deployer   bool   // a deployer may call it, too
	Open       string // the group of calls that a server may free of tokens; empty for none
}

// These are the needs of calls. Calls that name a path, a pipeline or a run also check the paths of
// the grant. Lists leave out what a bound caller may not read; see package scope.
var (
	Anybody = Need{Anybody: true}
	Signs   = Need{Anybody: true, Role: credentials.RoleSubmitter} // a submitter without a token; the operation checks a signature
	Submits = Need{Role: credentials.RoleSubmitter, Open: OpenEvents}
	Reads   = Need{Role: credentials.RoleViewer, Open: OpenRuns}
	Scrapes = Need{Role: credentials.RoleViewer, Open: OpenMetrics}
	Views   = Need{Role: credentials.RoleViewer}
	Surveys = Need{Role: credentials.RoleViewer, Everywhere: true} // data of all pipelines
	Asks    = Need{Role: credentials.RoleSubmitter}                // services, whose questions may register keys
	Works   = Need{Role: credentials.RoleWorker}                   // the operation also checks the types of the tasks
	Steers  = Need{Role: credentials.RoleOperator}
	Tunes   = Need{Role: credentials.RoleOperator, Everywhere: true}
	Rules   = Need{Role: credentials.RoleAdmin}

	Deploys  = Need{Role: credentials.RoleDeployer}                                 // the operation also checks the owners of files
	Follows  = Need{Role: credentials.RoleViewer, Deployer: true}                   // what a deployment comes to
	Compares = Need{Role: credentials.RoleViewer, Everywhere: true, Deployer: true} // versions
)

// These are the groups of calls that a server may free of tokens.
const (
	OpenEvents  = "events"  // submitting events and tasks
	OpenRuns    = "runs"    // reading runs and keys
	OpenMetrics = "metrics" // /metrics
)

// OpenGroups lists these groups.
func OpenGroups() []string { return []string{OpenEvents, OpenRuns, OpenMetrics} }
