// Package render writes findings: as text, and as JSON, JUnit, SARIF and GitHub annotations.
package render
