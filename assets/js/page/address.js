// The address of the page says what it shows, so that a link or a reload brings the same.

/** Put one parameter into the address without loading the page anew. */
export function setParameter(name, value) {
  history.replaceState(history.state, '', withParameter(name, value));
}

/** The address with one parameter changed. */
export function withParameter(name, value, address = location.href) {
  const url = new URL(address);
  url.searchParams.set(name, value);
  return url.href;
}
