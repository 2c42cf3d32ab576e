// Package format rewrites files. It formats them (Reformat), converts the first version of the language
// (Upgrade), adds entries (Insert), and fixes findings (Mend). It keeps comments and order, and reads its
// result again before it returns it.
//
// The package knows the text of files, but no fields of the language.
package format
