// Package syntax reads the text of an expression into a tree with places. It knows no names and no values.
package syntax
