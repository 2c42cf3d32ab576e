// Package render writes findings: as text for people, and as JSON, JUnit, SARIF and GitHub annotations for machines.
package render
