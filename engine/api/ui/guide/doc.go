// Package guide shows the documentation inside of the console: its pages as HTML, the rules of findings, and a search.
package guide
