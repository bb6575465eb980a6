// Updates elements in place, so that the focus, the selection and the scrolling stay where they are.

/** Makes the children of an element equal to new ones. Elements that fit are kept. */
export function patch(target, ...children) {
  const wanted = children.flat().filter((child) => child != null && child !== false).map(
    (child) => child instanceof Node ? child : document.createTextNode(child));
  patchChildren(target, wanted);
}

function patchChildren(target, wanted) {
  const kept = new Map([...target.children].map((child) => [child.dataset.key, child]));
  const coming = new Set(wanted.map(keyOf));
  let at = target.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    // Rows that are gone make room for those that follow them.
    while (at && keyOf(at) != null && !coming.has(keyOf(at)) && !isInUse(at)) at = removed(at);
    if (key != null && kept.has(key)) {
      const old = kept.get(key);
      if (old !== at) target.insertBefore(old, at);
      else at = at.nextSibling;
      patchNode(old, next);
    } else if (key != null || !at) {
      target.insertBefore(next, at);
    } else {
      const old = at;
      at = at.nextSibling;
      if (isSame(old, next)) patchNode(old, next);
      else if (!isInUse(old)) old.replaceWith(next);
    }
  }
  while (at) at = isInUse(at) ? at.nextSibling : removed(at);
}

const keyOf = (node) => node.dataset?.key;

const isSame = (old, next) => old.nodeName === next.nodeName && keyOf(old) === keyOf(next);

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function patchNode(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data && !isSelected(old)) old.data = next.data;
    return;
  }
  for (const {name} of [...old.attributes]) {
    // The user opens and closes details.
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const {name, value} of next.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  patchChildren(old, [...next.childNodes]);
}

function isSelected(node) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(node, true);
}

/** An element with the focus or with selected text is not removed. */
const isInUse = (node) => isSelected(node) || node.contains(document.activeElement);
