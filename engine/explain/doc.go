// Package explain says why a handler ran in a run, or did not, and tells runs as stories.
package explain
