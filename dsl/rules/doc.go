// Package rules lists the codes of all findings, each with the text that explains it and two example files.
package rules
