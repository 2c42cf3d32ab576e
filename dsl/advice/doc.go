// Package advice tells of what works, though another way would be simpler, faster or safer.
package advice
