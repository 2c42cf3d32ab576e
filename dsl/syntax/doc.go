// Package syntax parses expressions into trees with positions. It knows neither names nor values.
package syntax
