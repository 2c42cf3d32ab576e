// Package merge makes one bundle of the documents of all files, and says what is declared twice or belongs nowhere.
package merge
