// Package format rewrites files: it lays them out (Reformat), turns what is of the first
// version of the language into the second (Upgrade), adds entries (Insert), and mends what
// has a certain remedy (Mend). What it gives keeps the comments and the order of the file, and
// is read again before anybody gets it.
//
// It knows the text of files and no field of the language.
package format
