// Package credentials says who may call the API: tokens, what they allow, and who has signed in.
package credentials
