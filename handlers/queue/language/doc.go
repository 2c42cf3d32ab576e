// Package language has what the queue adds to the language: the field queue of pipelines, with its check and its rules.
package language
