// Package urls reads the addresses of servers, and says what is wrong with them before the first call fails.
package urls
