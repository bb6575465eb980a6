// Requests to the server, and the stream of overviews.

const KEY = "penstock-token";
// How long to wait before the stream is opened again.
const RETRY_MS = 2000;

export class TokenNeeded extends Error {}

export const setToken = (token) => sessionStorage.setItem(KEY, token);

function headers(extra = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? {...extra, Authorization: `Bearer ${token}`} : extra;
}

/** The response of the server. A browser says no more than "Failed to fetch" without one. */
async function request(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new Error("The server cannot be reached.");
  }
}

async function check(response) {
  if (response.ok) return response;
  if (response.status === 401) {
    throw new TokenNeeded(sessionStorage.getItem(KEY)
      ? "The token is not the right one." : "A token is needed.");
  }
  const problem = await response.json().catch(() => ({}));
  throw new Error(problem.detail || `${response.status} ${response.statusText}`);
}

/** The JSON document at a path, such as get("stores/counts/entries", {limit: 50}). */
export async function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(given).toString();
  const response = await request(query ? `${path}?${query}` : path, {headers: headers()});
  return (await check(response)).json();
}

export async function text(path) {
  return (await check(await request(path, {headers: headers()}))).text();
}

/** Another site cannot send the header, so it cannot act in the name of this page. */
export async function act(name, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const response = await request(`dashboard/actions/${name}?${query}`, {
    method: "POST", headers: headers({"X-Penstock-Action": "1"}),
  });
  return (await check(response)).json();
}

/**
 * Calls onConnect before each connection, and onOverview with every document that the server pushes.
 * Connects again when the connection is lost.
 */
export async function follow(onConnect, onOverview, onProblem) {
  for (;;) {
    try {
      await onConnect();
      const response = await check(await request("dashboard/events", {headers: headers()}));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let pending = "";
      for (;;) {
        const {value, done} = await reader.read();
        if (done) break;
        const events = (pending + value).split("\n\n");
        pending = events.pop();
        for (const event of events) onOverview(JSON.parse(event.slice("data: ".length)));
      }
      onProblem(new Error("The server has closed the connection."));
    } catch (error) {
      onProblem(error);
      if (error instanceof TokenNeeded) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
