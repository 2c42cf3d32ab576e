// Package taskrun runs the tasks of pipelines that have a queue section: it takes them, makes runs of
// them, tells when a failed one is tried again, and tends what no worker has.
package taskrun
