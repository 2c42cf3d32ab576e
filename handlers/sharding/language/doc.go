// Package language has what sharding adds to the language: the section shard-maps of files, with its check and its rules.
package language

import ()
