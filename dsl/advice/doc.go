// Package advice reports what works, but could be simpler, faster or safer.
package advice
