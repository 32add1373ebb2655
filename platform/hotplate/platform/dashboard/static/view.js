// What every page is written with.
import { h, render, Fragment } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { signal, computed, effect, batch, useSignal, useComputed } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);
export { h, render, Fragment, useEffect, useLayoutEffect, useMemo, useRef, useState };
export { signal, computed, effect, batch, useSignal, useComputed };
