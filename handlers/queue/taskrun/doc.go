// Package taskrun runs the tasks of pipelines with a queue section. It claims tasks, makes runs of
// them, decides about retries, and maintains the queue.
package taskrun
